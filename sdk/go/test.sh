#!/usr/bin/env bash
# Tests the Go SDK: format, vet (here and where there is no ledger), all tests under the race detector and the core without it, a little fuzzing,
# and the benchmark. Prints each test, and in the end how many passed. PLIMSOLL_VECTORS: another directory of test vectors.
set -uo pipefail
cd "$(dirname "$0")" || exit 1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failures=()

# step NAME COMMAND...: shows what it prints, and remembers whether it failed.
step() {
  local name=$1
  shift
  echo "== $name"
  "$@" 2>&1 | tee -a "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || failures+=("$name")
}

formatted() {
  local wrong
  wrong=$(gofmt -l .)
  [ -z "$wrong" ] || { echo "not as gofmt writes it: $wrong"; return 1; }
}

vetted() {
  go vet ./... && (cd grpcplimsoll && go vet ./...) || return 1
  local target
  for target in linux/arm64 linux/386 darwin/arm64 windows/amd64; do
    GOOS=${target%/*} GOARCH=${target#*/} go build ./... || return 1
  done
}

# tests DIRECTORY ARGUMENT...: what `go test` says of each test, by name, and all of what failed.
tests() {
  (cd "$1" && shift && go test -count=1 -timeout 120s -v "$@") | grep -Ev '^(=== |\?|PASS$|coverage:)'
  return "${PIPESTATUS[0]}"
}

benchmark() {
  local line
  line=$(go run ./bench) && echo "$line" &&
    for key in '"lang":"go"' '"calm_ns":' '"exact_ns":' '"task_ns":'; do
      [[ $line == *"$key"* ]] || { echo "no $key"; return 1; }
    done
}

step "format" formatted
step "vet, other platforms" vetted
step "tests, race detector" tests . -race ./...
step "tests, gRPC, race detector" tests grpcplimsoll -race ./...
step "tests, plain" tests . . ./internal/ledger
step "fuzzing" tests . -run '^FuzzParse$' -fuzz '^FuzzParse$' -fuzztime 20000x ./internal/control
step "benchmark" benchmark

passed=$(grep -c -- '--- PASS:' "$log")
failed=$(grep -c -- '--- FAIL:' "$log")
skipped=$(grep -c -- '--- SKIP:' "$log")
echo "sdk/go: $passed passed, $failed failed, $skipped skipped; steps that failed: ${failures[*]:-none}"
[ ${#failures[@]} -eq 0 ] && [ "$passed" -gt 0 ] && [ "$failed" -eq 0 ]
