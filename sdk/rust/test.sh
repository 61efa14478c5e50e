#!/usr/bin/env bash
# Runs all tests of the Rust SDK and of the crate that it writes ledgers with, and says how many there were.
#
#   sdk/rust/test.sh          PLIMSOLL_VECTORS names another directory of test vectors
#
# Needs cargo and a C compiler.
set -uo pipefail
cd "$(dirname "$0")/../.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
run() {
  cargo test --locked "$@" 2>&1 | tee -a "$log" | grep -E '^(test |error|thread |  (left|right):)|panicked|^     Running|^   Doc-tests' || true
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
}
run -p plimsoll-ledger
run -p plimsoll-sdk --all-features
run -p plimsoll-sdk-testbed

count() { grep -cE "^test .* \.\.\. $1" "$log"; }
echo "sdk/rust: $(count ok) passed, $(count FAILED) failed"
exit $failed
