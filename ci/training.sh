#!/usr/bin/env bash
# The training of the learned controller, in small: the module is built, a few hundred episodes are trained, and what was learned, like what
# is committed, acts in production as it did in training; and `plimsoll fleet train`, which must be built, trains it further on a scenario.
#
#   ci/training.sh           does it
#   ci/training.sh check     whether the Python packages are here
#   ci/training.sh install   fetches them
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${PLIMSOLL_TRAINING_VENV:-$PWD/out/training-venv}

case ${1:-} in
  check) "$venv/bin/python" -c 'import gymnasium, jax, maturin, optax, safetensors' ;;
  install) training/run.sh --setup ;;
  *)
    training/run.sh --quick
    echo "training quick ok"
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    scenario=paper/topfull/starvation.toml plimsoll=target/release/plimsoll
    "$plimsoll" fleet train "$scenario" --out "$out/further.safetensors" --episodes 48 --python "$venv/bin/python"
    [ -s "$out/further.safetensors" ]
    "$plimsoll" fleet run "$scenario" --controller learned --weights "$out/further.safetensors" --json >"$out/report.json"
    "$venv/bin/python" -c 'import json, sys; share = json.load(open(sys.argv[1]))["share_of_optimum"]; assert share > 0.5, share' "$out/report.json"
    echo "training further ok"
    ;;
esac
