#!/usr/bin/env bash
# What a decision costs, beside Netflix concurrency-limits and failsafe-go. `run.sh --help` says how to run it,
# measure.py what it does. Needs Java, Maven and Go.
here=$(dirname "$(readlink -f "$0")")
PYTHONPATH=$here/../gateways:$here PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/measure.py" "$@"
