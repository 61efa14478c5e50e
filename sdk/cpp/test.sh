#!/usr/bin/env bash
# Everything about the C++ SDK: compilers, vectors, unit tests under sanitizers, the README's example, the testbed. `PLIMSOLL_VECTORS` names another directory of vectors.
set -uo pipefail
cd "$(dirname "$0")"
export PLIMSOLL_VECTORS="${PLIMSOLL_VECTORS:-$PWD/../vectors}"
sdk=sdk/cpp
source ../c/tests/steps.sh
need gcc g++ make pkg-config python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
includes="-Iinclude -I../c/include -I../c/src -I../c/tests"
warn="-Wall -Wextra -Wpedantic -Werror"

# tests OUT SOURCES... -- FLAGS...: the tests with the harness, the agent and the vectors of the C tests.
tests() {
    local out=$1
    shift
    mkdir -p "$out.o"
    for file in harness agent dump vectors; do gcc -std=c11 -D_GNU_SOURCE -g "$@" $includes -c ../c/tests/$file.c -o "$out.o/$file.o" || return 1; done
    g++ -std=c++20 $warn -g "$@" $includes tests/*.cpp "$out.o"/*.o -pthread -o "$out"
}

header_alone() {
    for header in plimsoll.hpp plimsoll_tracked.hpp; do
        for compiler in g++ clang++; do
            if command -v $compiler >/dev/null; then $compiler -std=c++20 $warn $includes -fsyntax-only -x c++ - <<<"#include <$header>" || return 1; fi
        done
    done
}

extract() {
    awk '/^```cpp$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >"$work/report.cpp" && test -s "$work/report.cpp"
}

# The example of the README with what `make install` installs, and without anything to link.
example_linked() {
    extract && make -s install PREFIX="$work/prefix" BUILD="$work/build" &&
        g++ -std=c++20 $warn "$work/report.cpp" $(PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig" pkg-config --cflags --libs plimsoll) -Wl,-rpath,"$work/prefix/lib" -o "$work/report" &&
        test "$(PLIMSOLL_DIR="$work/ledgers" "$work/report")" = "1000 rows" && test -z "$(ls "$work/ledgers")"
}

example_alone() {
    extract && g++ -std=c++20 $warn $includes "$work/report.cpp" tests/implementation.cpp -pthread -o "$work/alone" &&
        test "$(PLIMSOLL_DIR="$work/ledgers" "$work/alone")" = "1000 rows" && test -z "$(ls "$work/ledgers")" &&
        test "$(PLIMSOLL_DIR=/proc/nowhere "$work/alone" 2>"$work/said")" = "1000 rows" && test "$(wc -l <"$work/said")" = 1
}

bench() {
    make -s bench BUILD="$work/build" | tee "$work/bench" && python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); assert r["lang"] == "cpp" and all(r[k] > 0 for k in ("calm_ns", "exact_ns", "task_ns"))' "$work/bench"
}

step cpp_headers_alone header_alone
step cpp_readme_example_linked example_linked
step cpp_readme_example_alone example_alone
tests "$work/asan" -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined &
tests "$work/tsan" -O1 -fsanitize=thread &
wait
ASAN_OPTIONS=use_sigaltstack=0 suite "" "$work/asan" cpp_
suite cpp_ "$work/asan" vectors
TSAN_OPTIONS=halt_on_error=1 suite tsan_ "$work/tsan" cpp_threads cpp_stop_token cpp_rerun cpp_actions
step testbed_cpp_builds make -s testbed BUILD="$work/build"
suite "" python3 ../c/tests/testbed.py testbed_cpp "$work/build/testbed"
step cpp_bench bench

finish
