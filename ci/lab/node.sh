#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# node.sh DIR NAME: the first process of a node: its own host name, /dev/shm, sshd and slurmd. It reaps what slurmd leaves.
set -euo pipefail
dir=$1 name=$2
hostname "$name"
mount -t tmpfs -o size=512m tmpfs /dev/shm
until [[ -e $dir/nodes/$name/linked ]]; do sleep 0.02; done
/usr/sbin/sshd -D -f "$dir/ssh/server" &
# By name: controller and nodes are told apart by it, not by the host they find themselves on.
slurmd -D -N "$name" &
while :; do wait; sleep 1; done
