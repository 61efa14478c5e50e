#!/usr/bin/env bash
# Runs the testbed server, which it builds first if need be: run.sh --port N. Prints `ready PORT` on standard output.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
. ./jdk.sh >&2
built=testbed/target/classes
if [ ! -d $built ] || [ -n "$(find core/src/main testbed/src/main -newer $built -print -quit)" ]; then
  "${mvn[@]}" --quiet -pl core,testbed compile >&2
  touch $built
fi
exec "$JAVA_HOME/bin/java" -Xmx256m -cp core/target/classes:testbed/target/classes io.plimsoll.testbed.Testbed "$@"
