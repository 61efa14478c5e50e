#!/usr/bin/env bash
# The simulator's speed, beside SimPy. `run.sh --help` says how to run it, measure.py what it does. Needs Python with venv.
here=$(dirname "$(readlink -f "$0")")
PYTHONPATH=$here/../gateways:$here PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/measure.py" "$@"
