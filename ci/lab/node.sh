#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# node.sh DIR NAME: the first process of a node; starts its sshd and slurmd with its own host name and /dev/shm, and reaps orphans.
set -euo pipefail
dir=$1 name=$2
hostname "$name"
mount -t tmpfs -o size=512m tmpfs /dev/shm
until [[ -e $dir/nodes/$name/linked ]]; do sleep 0.02; done
/usr/sbin/sshd -D -f "$dir/ssh/server" &
# -N, because all nodes run on the same host.
slurmd -D -N "$name" &
while :; do wait; sleep 1; done
