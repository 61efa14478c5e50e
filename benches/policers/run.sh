#!/usr/bin/env bash
# What policing costs a request, for both policers. `run.sh --help` says how to run it, measure.py what it does. Needs cargo alone.
here=$(dirname "$(readlink -f "$0")")
PYTHONPATH=$here/../gateways PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/measure.py" "$@"
