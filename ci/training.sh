#!/usr/bin/env bash
# The training of the learned controller, in small: the module is built, a few hundred episodes are trained, and what was learned, like what
# is committed, acts in production as it did in training.
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
    ;;
esac
