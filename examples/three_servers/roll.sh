#!/bin/sh
# Replace the three servers of `contextos@.service` one after the other.
set -eu
for port in 8771 8772 8773; do
    systemctl restart "contextos@$port"
    until curl --silent --fail --output /dev/null "http://127.0.0.1:$port/v1/ready"; do sleep 1; done
done
