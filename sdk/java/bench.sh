#!/usr/bin/env bash
# Measures what a get and a free cost and prints it as a line of JSON: nanoseconds of processor time, medians of 15 repetitions, 5 in each of 3 processes. Takes a minute.
# `bench.sh stores` measures bare stores instead, in the ways in which Java can do them. A plain benchmark, not JMH, which measures elapsed time and so wants a machine for itself.
set -euo pipefail
cd "$(dirname "$0")"
. ./jdk.sh >&2
"${mvn[@]}" --quiet -pl core,bench compile >&2
exec "$JAVA_HOME/bin/java" -cp core/target/classes:bench/target/classes io.plimsoll.bench.Bench "$@"
