#!/usr/bin/env bash
# Builds the Java SDK and runs all its tests. PLIMSOLL_VECTORS names the directory of the test vectors where it is not sdk/vectors.
# The JDK is that of JAVA_HOME or the newest under /usr/lib/jvm, 22 or later; Maven fetches what it needs, and nothing once it has it.
set -euo pipefail
cd "$(dirname "$0")"
. ./jdk.sh
export PLIMSOLL_VECTORS=${PLIMSOLL_VECTORS:-$(cd ../vectors && pwd)}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
set +e # what Maven says counts, not what grep does
"${mvn[@]}" --fail-at-end test 2>&1 | tee "$log" | grep -E --line-buffered '^\[(INFO|ERROR)\] (io\.plimsoll\.|  )|Tests run:|COMPILATION|seed|BUILD|<<<'
code=${PIPESTATUS[0]}
set -e
if [ "$code" -ne 0 ]; then
  grep -E '^\[ERROR\]|^	at |Exception|Error:' "$log" | head -n 60 || true
  echo "Maven has failed"
fi
# The last line of each module that ran tests: "Tests run: N, Failures: N, Errors: N, Skipped: N", without a time.
awk -v code="$code" '
  /Tests run:.*Skipped: [0-9]+$/ {
    gsub(/[^0-9 ]/, ""); ran += $1; failed += $2 + $3; skipped += $4
  }
  END {
    if (ran == 0) { print "no test has run"; exit 1 }
    printf "%d passed, %d failed, %d skipped\n", ran - failed - skipped, failed, skipped
    exit (failed > 0 || code != 0)
  }' "$log"
