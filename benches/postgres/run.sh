#!/usr/bin/env bash
# A real PostgreSQL and the agent: `run.sh cases` runs the cases, `run.sh overhead` measures what watching costs, `run.sh report` makes the
# results from what has been run. Each says with --help what it can be told. Needs release builds:
#
#   cargo build --release -p plimsoll -p plimsoll-testbed --example postgres_cases --bin plimsoll
here=$(dirname "$(readlink -f "$0")")
export PYTHONPATH=$here/../gateways:$here PYTHONDONTWRITEBYTECODE=1
case ${1-} in
cases | overhead | report) program=$1 && shift && exec python3 "$here/$program.py" "$@" ;;
*) sed -n '2,5s/^# \?//p' "$0" >&2 && exit 2 ;;
esac
