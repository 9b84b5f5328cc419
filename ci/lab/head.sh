#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# head.sh DIR NODES NICS NODES_PER_LEAF: the first process of the lab, which up starts in new namespaces. It starts the switch, the nodes, munge
# and the controller; all of them end when it is killed. As process 1 it also reaps the orphans of Slurm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1 nodes=$2 nics=$3 leaf=$4
export SLURM_CONF=$dir/slurm.conf PATH=$PATH:/usr/sbin:/sbin

hostname head
mount -t tmpfs tmpfs /run
mount --bind "$dir/hosts" /etc/hosts
if [[ -e $dir/slurm ]]; then # another Slurm takes the place of the installed one, in this namespace
    for program in "$dir"/slurm/bin/*; do # scrontab has none to replace: Debian 12 lacks it
        ! place=$(command -v "${program##*/}") || mount --bind "$program" "$(readlink -f "$place")"
    done
fi
ip link set lo up
ip link add switch type bridge
ip link set switch up
ip addr add 10.77.0.254/24 dev switch
# Each further NIC of the nodes has a switch of its own. Leaf switches are only in the first network; `shape` limits their uplinks.
for i in $(seq 1 $((nics - 1))); do
    ip link add "switch$i" type bridge
    ip link set "switch$i" up
done
for l in $( ((leaf == 0)) || seq $(((nodes + leaf - 1) / leaf))); do
    ip link add "bridge$l" type bridge
    ip link add "leaf$l" type veth peer name "uplink$l"
    ip link set "leaf$l" master switch
    ip link set "uplink$l" master "bridge$l"
    for link in "bridge$l" "leaf$l" "uplink$l"; do ip link set "$link" up; done
done

install -d -o munge -g munge /run/munge
head -c 128 /dev/urandom >/run/munge/key
chown munge: /run/munge/key
chmod 400 /run/munge/key
runuser -u munge -- munged --key-file /run/munge/key --pid-file /run/munge/pid --log-file /run/munge/log --seed-file /run/munge/seed

# Users of one node can log in to the others by key; known_hosts has all host keys, so ssh does not prompt.
mkdir -p "$dir/ssh" /run/sshd
for key in user host; do ssh-keygen -q -t ed25519 -N "" -f "$dir/ssh/$key"; done
for n in $(seq "$nodes"); do echo "n$n,10.77.0.$n $(<"$dir/ssh/host.pub")"; done >"$dir/ssh/known_hosts"
printf '%s\n' "IdentityFile $dir/ssh/user" "UserKnownHostsFile $dir/ssh/known_hosts" >"$dir/ssh/client"
printf '%s\n' "HostKey $dir/ssh/host" "AuthorizedKeysFile $dir/ssh/user.pub" "StrictModes no" "PidFile none" >"$dir/ssh/server"
mount --bind "$dir/ssh/client" /etc/ssh/ssh_config

if [[ -d $dir/db ]]; then
    mkdir -p /run/mysqld
    # Without a check of users: only processes of this namespace reach its socket.
    mariadb=(mariadbd --no-defaults --datadir="$dir/db" --lc-messages-dir=/usr/share/mysql --user=root)
    { printf 'create database mysql;\nuse mysql;\n' && cat /usr/share/mysql/mysql_system_tables.sql; } |
        "${mariadb[@]}" --bootstrap >"$dir/log/mariadb" 2>&1
    "${mariadb[@]}" --socket=/run/mysqld/mysqld.sock --skip-networking --skip-grant-tables >>"$dir/log/mariadb" 2>&1 &
    until [[ -S /run/mysqld/mysqld.sock ]]; do sleep 0.1; done
    slurmdbd -D &
    until sacctmgr --immediate --quiet add cluster lab; do sleep 0.2; done
    sacctmgr --immediate --quiet add account ops
    sacctmgr --immediate --quiet add qos maint
    sacctmgr --immediate --quiet add user root account=ops qos=normal,maint defaultqos=normal
fi

slurmctld -D -c &
for n in $(seq "$nodes"); do
    mkdir -p "$dir/nodes/n$n/tmp"
    own=() groups=()
    if [[ -d $dir/db ]]; then
        own=(--cgroup)
        for controller in cpuset freezer memory; do
            group=/sys/fs/cgroup/$controller/busbar-lab-$(stat -c %i "$dir")-n$n
            mkdir "$group"
            groups+=("$group")
            # A new group has no CPU yet.
            [[ $controller != cpuset ]] || for key in cpus mems; do cat "/sys/fs/cgroup/cpuset/cpuset.$key" >"$group/cpuset.$key"; done
        done
    fi
    (
        for group in "${groups[@]}"; do echo "$BASHPID" >"$group/cgroup.procs"; done
        exec unshare --net --pid --mount --uts --ipc "${own[@]}" --fork --kill-child --mount-proc "$here/node.sh" "$dir" "n$n"
    ) >"$dir/log/n$n" 2>&1 &
    parent=$!
    node=
    until [[ -n $node ]]; do
        sleep 0.02
        node=$(<"/proc/$parent/task/$parent/children")
        node=${node%% *}
    done
    echo "$node" >"$dir/nodes/n$n/pid"
    ip link add "n$n" type veth peer name eth0 netns "$node"
    ip link set "n$n" master "$( ((leaf == 0)) && echo switch || echo "bridge$(((n - 1) / leaf + 1))")"
    ip link set "n$n" up
    nsenter --target "$node" --net sh -c "ip link set lo up; ip addr add 10.77.0.$n/24 dev eth0; ip link set eth0 up"
    for i in $(seq 1 $((nics - 1))); do
        ip link add "n$n.$i" type veth peer name "eth$i" netns "$node"
        ip link set "n$n.$i" master "switch$i"
        ip link set "n$n.$i" up
        nsenter --target "$node" --net sh -c "ip addr add 10.$((77 + i)).0.$n/24 dev eth$i; ip link set eth$i up"
    done
    touch "$dir/nodes/n$n/linked"
done
until [[ $(sinfo --noheader --states idle --format %D) == "$nodes" ]]; do sleep 0.1; done
touch "$dir/ready"
while :; do wait; sleep 1; done
