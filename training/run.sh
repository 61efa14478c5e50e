#!/usr/bin/env bash
# Trains the base model of the learned rate controller and judges it.
#
#   training/run.sh [DIRECTORY]   everything, into out/training by default: three minutes on two cores
#   training/run.sh --quick       the same with a few hundred episodes, to see that all of it works
#   training/run.sh --setup       only what `plimsoll fleet train` needs: a Python environment, and the module in it
#
# The environment is made in PLIMSOLL_TRAINING_VENV, or else in out/training-venv.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
venv=${PLIMSOLL_TRAINING_VENV:-$PWD/out/training-venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m maturin --version >/dev/null 2>&1 || "$venv/bin/pip" install --quiet 'maturin>=1.9,<2'
PATH=$venv/bin:$PATH "$venv/bin/pip" install --quiet --no-build-isolation training/

train() { "$venv/bin/python" -m plimsoll_training "$@"; }
case ${1:-} in
  --setup) echo "plimsoll fleet train --python $venv/bin/python" ;;
  --quick)
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    train base --out "$out" --episodes 480 --fleet-episodes 0 --check-every 480 --validation 2
    train check --weights "$out/base.safetensors" --vectors "$out/vectors.csv"
    train check --weights crates/ratecontrol/models/base.safetensors --vectors crates/ratecontrol/models/vectors.csv
    ;;
  *)
    out=${1:-out/training}
    train base --out "$out"
    train check --weights "$out/base.safetensors" --vectors "$out/vectors.csv"
    train evaluate --weights "$out/base.safetensors" | tee "$out/evaluation.json"
    ;;
esac
