#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# node.sh DIR NAME: the first process of a node; starts its sshd and slurmd with its own host name and /dev/shm, and reaps orphans.
set -euo pipefail
dir=$1 name=$2
hostname "$name"
mount -t tmpfs -o size=512m tmpfs /dev/shm
# With the NICs of this node: UCX reads their names there, and a sweep their counters.
mount -t sysfs sysfs /sys
if [[ -d $dir/db ]]; then # with control groups, which begin at this node's own
    mount -t tmpfs tmpfs /sys/fs/cgroup
    for controller in cpuset freezer memory; do
        mkdir "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" "$controller" "/sys/fs/cgroup/$controller"
    done
fi
until [[ -e $dir/nodes/$name/linked ]]; do sleep 0.02; done
/usr/sbin/sshd -D -f "$dir/ssh/server" &
# -N, because all nodes run on the same host.
slurmd -D -N "$name" &
while :; do wait; sleep 1; done
