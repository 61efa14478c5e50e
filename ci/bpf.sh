#!/bin/sh
# The BPF program of the herald: `build` compiles crates/herald/bpf/tasks.bpf.c into the object that is committed beside it, so that
# building Plimsoll needs no clang; `check` compiles it anew and compares. The bytes depend on the compiler: it is clang 14, that of
# Debian 12 (apt-get install clang-14 llvm-14).
set -eu
cd "$(dirname "$0")/../crates/herald/bpf"

compile() {
    if ! command -v clang-14 >/dev/null || ! command -v llvm-strip-14 >/dev/null; then
        echo "ci/bpf.sh: clang-14 and llvm-strip-14 are missing; apt-get install clang-14 llvm-14" >&2
        exit 1
    fi
    clang-14 -g -O2 -target bpf -mcpu=v3 -Wall -Werror -fdebug-prefix-map="$PWD=." -c tasks.bpf.c -o "$1"
    # Without the lines of the source; the type information stays.
    llvm-strip-14 -g "$1"
}

case "${1-}" in
build) compile tasks.bpf.o ;;
check)
    made=$(mktemp)
    trap 'rm -f "$made"' EXIT
    compile "$made"
    if ! cmp "$made" tasks.bpf.o; then
        echo "ci/bpf.sh: tasks.bpf.o is not what tasks.bpf.c gives; run ci/bpf.sh build" >&2
        exit 1
    fi
    echo "bpf: tasks.bpf.o is what tasks.bpf.c gives"
    ;;
*)
    echo "usage: ci/bpf.sh build|check" >&2
    exit 2
    ;;
esac
