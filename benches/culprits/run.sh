#!/usr/bin/env bash
# What accounts cost a real server, in each SDK's language. `run.sh --help` says how to run it, overhead.py what it does.
here=$(dirname "$(readlink -f "$0")")
PYTHONPATH=$here/../gateways:$here/../../ci PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/overhead.py" "$@"
