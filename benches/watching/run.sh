#!/usr/bin/env bash
# What it costs a server to be watched by an agent. `run.sh --help` says how to run it, measure.py what it does. Needs the servers: `plimsoll case list`.
here=$(dirname "$(readlink -f "$0")")
PYTHONPATH=$here/../gateways PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/measure.py" "$@"
