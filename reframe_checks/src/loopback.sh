#!/bin/sh
# SPDX-License-Identifier: MIT
# loopback.sh PROGRAM OPTIONS...: runs ucx_perftest as server and as client of this node; the client's result counts.
set -u
port=$((20000 + $$ % 20000))
"$@" -p "$port" >/dev/null &
server=$!
status=1
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    sleep 0.5 # the server loads GPU drivers before it listens
    kill -0 "$server" || break # it has ended: its error is on standard error
    output=$("$@" -p "$port" -f 127.0.0.1) && status=0 && break
done
printf '%s\n' "${output:-no output from $1 after $attempt attempts}"
kill "$server" 2>/dev/null # it has ended already when all went well
wait "$server"
exit "$status"
