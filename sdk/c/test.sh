#!/usr/bin/env bash
# Everything about the C SDK: compilers, vectors, unit tests under sanitizers and valgrind, the README's example, the testbed. `PLIMSOLL_VECTORS` names another directory of vectors.
set -uo pipefail
cd "$(dirname "$0")"
export PLIMSOLL_VECTORS="${PLIMSOLL_VECTORS:-$PWD/../vectors}"
sdk=sdk/c
source tests/steps.sh
need gcc g++ make pkg-config valgrind python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tests() {
    gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -g "$@" -Iinclude -Isrc -Itests tests/*.c src/*.c -pthread
}

# The example of the README is compiled with what `make install` installs, and run.
example() {
    make -s install PREFIX="$work/prefix" BUILD="$work/build" &&
        awk '/^```c$/ { n++; on = 1; next } /^```$/ { on = 0 } on && n == 1' README.md >"$work/report.c" &&
        gcc -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Werror "$work/report.c" $(PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig" pkg-config --cflags --libs plimsoll) -Wl,-rpath,"$work/prefix/lib" -o "$work/report" &&
        test "$(PLIMSOLL_DIR="$work/ledgers" "$work/report")" = "1000 rows" && test -z "$(ls "$work/ledgers")" &&
        gcc -std=gnu11 "$work/report.c" -I"$work/prefix/include" "$work/prefix/lib/libplimsoll.a" -pthread -o "$work/report" &&
        test "$(PLIMSOLL_DIR=/proc/nowhere "$work/report" 2>"$work/said")" = "1000 rows" && test "$(wc -l <"$work/said")" = 1
}

# exports LIBRARY: only what the headers declare is to be seen.
exports() {
    ! nm -D --defined-only "$1" | awk '{ print $3 }' | grep -v '^plimsoll_' &&
        for symbol in $(nm -D --defined-only "$1" | awk '{ print $3 }'); do grep -q "\b$symbol\b" include/*.h || { echo "$symbol is in no header"; return 1; }; done
}

# The engine within a program: its tests with the static libraries, the README's example with what is installed.
engine_builds() {
    make -s install-engine PROFILE=dev PREFIX="$work/prefix" BUILD="$work/build" &&
        gcc -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -g -Iinclude -Itests tests/engine/*.c tests/harness.c "$work/build/libplimsoll_engine.a" "$work/build/libplimsoll.a" -pthread -lm -o "$work/engine"
}

engine_example() {
    awk '/^```c$/ { n++; on = 1; next } /^```$/ { on = 0 } on && n == 2' README.md >"$work/watched.c" &&
        gcc -std=gnu11 -Wall -Wextra -Wpedantic -Werror "$work/watched.c" $(PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig" pkg-config --cflags --libs plimsoll_engine) -Wl,-rpath,"$work/prefix/lib" -o "$work/watched" &&
        test -z "$(PLIMSOLL_DIR="$work/ledgers" "$work/watched" 2>&1)" && test -z "$(ls "$work/ledgers")"
}

bench() {
    make -s bench | tee "$work/bench" && python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); assert r["lang"] == "c" and all(r[k] > 0 for k in ("calm_ns", "exact_ns", "task_ns"))' "$work/bench"
}

for compiler in gcc clang; do
    command -v $compiler >/dev/null && step "build_with_$compiler" make -s all BUILD="$work/$compiler" CC=$compiler
done
step headers_are_c_plus_plus g++ -std=c++20 -Wall -Wextra -Wpedantic -Werror -Iinclude -x c++ -fsyntax-only include/plimsoll_tracked.h include/plimsoll_engine.h
step readme_example example
step exported_names exports "$work/build/libplimsoll.so"

tests -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -o "$work/asan" &
tests -O1 -fsanitize=thread -o "$work/tsan" &
tests -O1 -o "$work/plain" &
wait
# A thread that is cancelled unwinds from under the stack that the sanitizer gave it for signals.
ASAN_OPTIONS=use_sigaltstack=0 suite "" "$work/asan"
# Without the tests whose threads end a task while they exit: the sanitizer has forgotten such a thread by then.
TSAN_OPTIONS=halt_on_error=1 suite tsan_ "$work/tsan" threads control_a control_b control_can control_h control_o control_r rerun
suite valgrind_ valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect "$work/plain" tasks_n tasks_s tasks_cu tasks_e tasks_f tracked control_action_is control_t rerun_and vectors_s
step testbed_builds make -s testbed BUILD="$work/build"
suite "" python3 tests/testbed.py testbed_c "$work/build/testbed"
step bench bench
if command -v cargo >/dev/null; then
    step engine_builds engine_builds
    step engine_exported_names exports "$work/build/libplimsoll_engine.so"
    suite engine_ "$work/engine"
    step engine_readme_example engine_example
else
    echo "sdk/c: cargo is missing, so the engine is not tested" >&2
fi

finish
