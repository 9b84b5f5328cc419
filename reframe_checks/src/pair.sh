#!/bin/sh
# SPDX-License-Identifier: MIT
# pair.sh NAME SERVER_PORT CLIENT_PORT PROGRAM OPTIONS...: a server and its client; the client's output and status count. One
# process plays both parts on its node; of two the first is the server, and says in the job's directory where it is. The second
# and third word are the options that give the server its port and the client the server's.
set -u
place=$1.server server_port=$2 client_port=$3
shift 3
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}}
ranks=${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-${SLURM_NTASKS:-1}}}
limit=120 # seconds: a client that never comes must not cost the job's whole time; in the foreground a killed job takes it along

serve() { # with a port of its own each time: another's program may have the first
    port=$((20000 + ($$ + 997 * tries) % 20000))
    tries=$((tries + 1))
    timeout --foreground "$limit" "$@" "$server_port$port" >/dev/null &
    server=$!
    echo "$(uname -n) $port" >"$place.new" && mv "$place.new" "$place"
}

ready() { # the server loads drivers before it listens; that of another node cannot be seen
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.05
        [ "$ranks" != 1 ] || ! grep -q ":$(printf %04X "$port") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null || return
    done
}

tries=0
if [ "$rank" = 0 ]; then
    serve "$@"
    while [ "$ranks" != 1 ]; do
        wait "$server" && exit
        [ "$tries" -lt 5 ] || exit
        serve "$@"
    done
fi
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    ready
    [ "$ranks" != 1 ] || kill -0 "$server" 2>/dev/null || { # only asks whether it lives; why it died stands on standard error
        serve "$@"
        ready
    }
    [ -e "$place" ] || continue # the server has not said yet where it is
    read -r host port <"$place"
    [ "$ranks" != 1 ] || host=127.0.0.1
    output=$(timeout --foreground "$limit" "$@" "$client_port$port" "$host") && status=0 && break
done
printf '%s\n' "${output:-no output from $1 after $attempt attempts}"
if [ "$ranks" = 1 ]; then
    kill "$server" 2>/dev/null # it has ended already when all went well
    wait "$server" 2>/dev/null # the shell would say that it was terminated
fi
exit "${status:-1}"
