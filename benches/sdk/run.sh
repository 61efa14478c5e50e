#!/usr/bin/env bash
# What the SDKs' accounting costs, in all six languages. `run.sh --help` says how to run it, measure.py what it does.
# Needs what the SDKs' tests need: `ci/sdk.sh check` names what is missing.
here=$(dirname "$(readlink -f "$0")")
PYTHONPATH=$here/../gateways:$here/..:$here PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/measure.py" "$@"
