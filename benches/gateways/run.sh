#!/usr/bin/env bash
# All benchmarks beside other gateways, one after the other. Arguments go to each: --quick, --runs N, --install.
# Says `benchmark NAME ok` for each that ran; whether it met its targets stands in its tables and on the results page.
set -uo pipefail
cd "$(dirname "$0")"

failed=0
for name in forwarding refusing overload live policing; do
  if "./$name" "$@"; then
    printf '\nbenchmark %s ok\n\n' "$name"
  else
    printf '\nbenchmark %s FAILED\n\n' "$name"
    failed=1
  fi
done
exit $failed
