#!/usr/bin/env bash
# The module in a real Apache httpd: it builds without a warning, holds workers back, says what they do, lets them go on when its shepherd or a worker is killed, and says what
# is wrong with its directive.
set -uo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A build directory of its own: the source tree stays as it is.
make -s BUILD="$work/build" PROFILE=dev && exec python3 test.py "$work/build/mod_plimsoll.so"
