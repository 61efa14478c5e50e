#!/usr/bin/env bash
# Everything that the Python SDK is tested by: style, types, tests. Makes .venv beside itself and installs pytest, mypy and ruff there through pip.
#   PLIMSOLL_VECTORS   the directory of the test vectors; default ../vectors
#   PYTHON             the interpreter; default python3
set -euo pipefail
cd "$(dirname "$0")"

venv=.venv
if ! [ -x $venv/bin/pytest ] || ! cmp -s pyproject.toml $venv/pyproject.toml; then
  rm -rf $venv
  "${PYTHON:-python3}" -m venv $venv
  $venv/bin/pip install --quiet --editable '.[test]'
  cp pyproject.toml $venv/pyproject.toml
fi

$venv/bin/ruff format --check --quiet . || { echo "ruff format would change these files: run $venv/bin/ruff format"; exit 1; }
$venv/bin/ruff check --quiet .
$venv/bin/mypy --no-error-summary
log=$(mktemp)
trap 'rm -f "$log"' EXIT
$venv/bin/pytest "$@" | tee "$log"
$venv/bin/python bench
echo "sdk python: $(grep -c ' PASSED ' "$log") tests passed"
