#!/usr/bin/env bash
# Runs every fuzz target for some seconds, from its seeds on; fails on a crash and says which input it was.
#
#   fuzz/run.sh [SECONDS [TARGET...]]      default: 10 seconds each, all targets; 0 only builds them
#
# Needs `cargo install cargo-fuzz` and a C++ compiler. A stable toolchain will do, as no sanitizer is asked for: the
# code under test has no `unsafe`, so what there is to find are panics, hangs and broken promises.
set -uo pipefail
cd "$(dirname "$0")"

seconds=${1:-10}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls corpus)

# try TARGET: says `fuzz TARGET ok`, or how it ended.
try() {
  # New inputs go to the first directory; the seeds are only read.
  local target=$1 found=target/corpus/$1
  mkdir -p "$found"
  if cargo fuzz run --sanitizer none "$target" "$found" "corpus/$target" -- \
    -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=16384 -print_final_stats=1 >"target/$target.log" 2>&1; then
    sed -n 's/^stat::number_of_executed_units: */'"fuzz $target: inputs tried: /p" "target/$target.log" >&2
    echo "fuzz $target ok"
  else
    tail -n 40 "target/$target.log" >&2
    echo "fuzz $target FAILED" >&2
    return 1
  fi
}

cargo fuzz build --sanitizer none || exit 1
[ "$seconds" != 0 ] || exit 0
export -f try
export seconds
# As many at a time as there are processors: each runs on one.
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I TARGET bash -c 'try TARGET'
