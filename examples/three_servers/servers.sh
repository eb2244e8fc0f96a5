#!/bin/sh
# Three servers of a workspace: `sh servers.sh WORKSPACE`. SIGTERM ends them, SIGHUP replaces them one after the other.
set -eu
workspace=$1
ports=${PORTS:-8771 8772 8773}
drain=${DRAIN:-15}
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT

start() {
    contextos serve --port "$1" --drain "$drain" --workspace "$workspace" &
    echo $! > "$run/$1"
}

stop() {
    pid=$(cat "$run/$1")
    kill "$pid"
    # A signal to this shell ends `wait` before the server has ended.
    while kill -0 "$pid" 2> /dev/null; do wait "$pid" || true; done
}

replace() {
    for port in $ports; do
        stop "$port"
        start "$port"
        until curl --silent --fail --output /dev/null "http://127.0.0.1:$port/v1/ready"; do sleep 1; done
    done
    echo "all servers were replaced"
}

asked=
trap 'asked=replace' HUP
trap 'asked=end' INT TERM
for port in $ports; do start "$port"; done
while [ "$asked" != end ]; do
    if [ "$asked" = replace ]; then
        asked=
        replace
        continue
    fi
    sleep 1 &
    wait $! || true
done
for port in $ports; do stop "$port"; done
