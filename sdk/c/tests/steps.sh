# What the tests of the C and of the C++ SDK are run with: steps that are counted. Needs `work`, a directory of its own.
passed=0 failed=0

# need TOOL...: installs what is missing, where that is possible, and else names it.
need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { [ "$(id -u)" = 0 ] && apt-get install -y -q "$tool" >/dev/null; } || echo "$sdk: $tool is missing; apt-get install $tool" >&2
    done
}

# step NAME COMMAND...: a test of its own.
step() {
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "test $name ... ok"
        passed=$((passed + 1))
    else
        cat "$work/log"
        echo "test $name ... FAILED"
        failed=$((failed + 1))
    fi
}

# suite PREFIX COMMAND...: a program that names its tests; PREFIX tells one build's from another's.
suite() {
    local prefix=$1
    shift
    "$@" >"$work/log" 2>&1 || { failed=$((failed + 1)); grep -v '^test .*ok$' "$work/log"; echo "test ${prefix}as_a_whole ... FAILED"; }
    sed -n "s/^test /test $prefix/p" "$work/log"
    passed=$((passed + $(grep -c '^test .* ok$' "$work/log")))
}

# finish: the last line, and whether all passed.
finish() {
    echo "$sdk: $passed passed, $failed failed"
    [ "$failed" = 0 ]
}
