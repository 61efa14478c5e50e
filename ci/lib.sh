# Helpers of ../test: steps that are counted, tools that are fetched or skipped aloud, ids of what ran.
export LC_ALL=C.UTF-8 # one order for sorting, everywhere
work=$(mktemp -d)
compiling=
trap 'rm -rf "$work"; kill $compiling 2>/dev/null' EXIT
touch "$work/ids"
passed=0 failed=() skipped=() times=()
# Tests that were run once more, and how many may be after one run.
again=() most_again=4

# step NAME COMMAND...: runs and counts one step. Exit code 77 is a skip.
step() {
  local name=$1 began=$SECONDS code
  shift
  printf '\n== %s\n' "$name"
  "$@"
  code=$?
  if [ $code -eq 77 ] && ! $all; then
    skipped+=("$name")
  elif [ $code -ne 0 ]; then
    failed+=("$name")
    printf '== %s FAILED (exit %s)\n' "$name" "$code"
  else
    passed=$((passed + 1))
  fi
  times+=("$((SECONDS - began)) s $name")
  printf '== %s: %s s\n' "$name" $((SECONDS - began))
}

# What comes from afar: it is fetched while the compiler has the CPUs.
afar=(bpf servers databases etcd otel sdks) preparing=

# prepare: under --all, begins to install what is missing of that. One after the other, as apt takes one at a time; what fails is tried
# again, and told of, by the step that needs it.
prepare() {
  $all || return 0
  for what in "${afar[@]}"; do
    "have_$what" || "install_$what"
  done >/dev/null 2>&1 &
  preparing=$!
}

# compile_ahead: begins to compile what later steps want, with what others leave of the processors: tests wait for most of their time. One after
# the other, as cargo has them wait for each other. What fails is told of by the step that wants it.
compile_ahead() {
  (
    chrt --idle --pid 0 $BASHPID
    "${release[@]}"
    with training true
    with cargo-fuzz "${fuzzing[@]}" 0
    "${documentation[@]}"
  ) >/dev/null 2>&1 &
  compiling=$!
}

# compiled: waits for that.
compiled() {
  wait "$compiling" || true
}

# with WHAT COMMAND...: runs it if WHAT is here or, under --all, can be installed.
with() {
  local what=$1
  shift
  if [ -n "$preparing" ] && [[ " ${afar[*]} " == *" $what "* ]]; then
    wait "$preparing"
    preparing=
  fi
  if ! "have_$what" >/dev/null 2>&1 && $all; then
    echo "installing $what"
    "install_$what" >"$work/install.log" 2>&1 || { tail -n 20 "$work/install.log"; return 1; }
  fi
  if ! "have_$what"; then
    echo "SKIPPED: $what is not here; ./test --all installs it"
    return 77
  fi
  "$@"
}

have_rustfmt() { cargo fmt --version; }
install_rustfmt() { rustup component add rustfmt; }
have_clippy() { cargo clippy --version; }
install_clippy() { rustup component add clippy; }
have_python3() { command -v python3; }
install_python3() { ci/servers.sh install; }
have_cargo-deny() { command -v cargo-deny; }
# Built without optimisation: they run once.
install_cargo-deny() { cargo install --debug --locked cargo-deny; }
have_cargo-fuzz() { command -v cargo-fuzz; }
install_cargo-fuzz() { cargo install --debug --locked cargo-fuzz; }
have_servers() { PATH="$PATH:$(go env GOPATH 2>/dev/null)/bin" && ci/servers.sh check; }
have_databases() { ci/servers.sh databases; }
install_databases() { ci/servers.sh install; }
have_etcd() { command -v etcd; }
install_etcd() { ci/servers.sh install; }
have_protoc() { command -v protoc; }
install_protoc() {
  local sudo
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq protobuf-compiler
}
install_servers() { ci/servers.sh install; }
# The bytes of a BPF object depend on the compiler, so it is this one.
have_bpf() { command -v clang-14 && command -v llvm-strip-14 && [ -e /usr/include/libelf.h ] && [ -e /usr/include/zlib.h ]; }
install_bpf() {
  local sudo
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq clang-14 llvm-14 libelf-dev zlib1g-dev
}
have_otel() { ci/otel/telemetry.py check; }
install_otel() { ci/otel/telemetry.py install; }
have_training() { ci/training.sh check; }
install_training() { ci/training.sh install; }
# By the release build, which knows where they belong and how to get them.
have_search() { ! ./target/release/plimsoll case list 2>&1 >/dev/null | grep -E 'there is no (OpenSearch|Elasticsearch|Solr|Java)'; }
install_search() {
  command -v mvn >/dev/null || ci/sdk.sh install || return
  local command
  ./target/release/plimsoll case list 2>&1 >/dev/null | sed -n 's/.*: get it with `\(mkdir .*\)`, or say in .*/\1/p' | while read -r command; do
    bash -c "$command" || bash -c "$command" || return
  done
}
have_sdks() { ci/sdk.sh check; }
install_sdks() { ci/sdk.sh install; }

# linted COMMAND...: what it has cargo compile of the workspace is compiled by clippy's driver, which does as rustc does and lints: warnings are
# errors, and what the tests run is compiled once rather than checked and then compiled.
linted() {
  if have_clippy >/dev/null 2>&1; then
    local -x RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
  fi
  "$@"
}

# Tests of whole programs, which wait for most of their time: as long as all others take together.
programs=(case controller demo process testbed)

# all_tests ARGUMENTS...: as `tests`, with those of whole programs beside all others.
all_tests() {
  # So that they need not wait for each other's compiler.
  cargo test --no-run "$@" || return
  cargo test --no-fail-fast "$@" "${programs[@]/#/--test=}" >"$work/programs.log" 2>&1 &
  local code beside=$! triple
  triple=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
  env "CARGO_TARGET_${triple}_RUNNER=$PWD/ci/without.sh ${programs[*]} --" cargo test --no-fail-fast "$@" 2>&1 | tee "$work/tests.log"
  code=${PIPESTATUS[0]}
  wait "$beside" || code=$?
  tee -a "$work/tests.log" <"$work/programs.log"
  tested "$code" "$@"
}

# tests ARGUMENTS...: cargo test, remembering the id of every test that passed.
tests() {
  cargo test --no-fail-fast "$@" 2>&1 | tee "$work/tests.log"
  tested "${PIPESTATUS[0]}" "$@"
}

# tested CODE ARGUMENTS...: reads tests.log. Of a few that fail, those of real processes on a machine that is shared may have been disturbed: they
# are run once more, by themselves, and told of at the end.
tested() {
  local code=$1 failures
  shift
  mapfile -t failures < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$work/tests.log" | sort -u)
  # A program that crashes says no result, and is not run again.
  if [ "$code" -ne 0 ] && [ ${#failures[@]} -gt 0 ] && [ ${#failures[@]} -le "$most_again" ] &&
    [ "$(grep -c '^error: .*test failed, to rerun pass' "$work/tests.log")" -eq "$(grep -c '^test result: FAILED' "$work/tests.log")" ]; then
    printf 'once more: %s\n' "${failures[@]}"
    cargo test --no-fail-fast "$@" -- --test-threads 1 --exact "${failures[@]}" 2>&1 | tee -a "$work/tests.log"
    code=${PIPESTATUS[0]}
    again+=("${failures[@]}")
  fi
  awk '
    /^ +Running / { binary = $0; sub(/.*\//, "", binary); sub(/-[0-9a-f]+\)$/, "", binary) }
    /^ +Doc-tests / { binary = "doc-" $2 }
    /^test .* \.\.\. ok$/ { id = $2; for (i = 3; i < NF - 1; i++) id = id " " $i; sub(/ \(line [0-9]+\)/, "", id); print "test " binary " " id }
  ' "$work/tests.log" >>"$work/ids"
  return "$code"
}

# script COMMAND...: a check of ours, remembering the id of every line that says `KIND NAME ok`.
script() {
  "$@" | tee "$work/script.log"
  local code=${PIPESTATUS[0]}
  sed -n 's/^\([a-z-]* [^ ]*\) ok$/\1/p' "$work/script.log" >>"$work/ids"
  return "$code"
}

# httpd_module: builds that of these sources, by which its tests go wherever another is installed.
httpd_module() {
  make -s -C sdk/httpd PROFILE=dev BUILD="$PWD/target/httpd" && export PLIMSOLL_HTTPD_MODULE="$PWD/target/httpd/mod_plimsoll.so"
}

# cases light|heavy: every case of that kind, in its quick form, with the agent; that of the module for httpd, which is a heavy one, among the light
# ones where it was built, and our plug-in of OpenSearch is built of these sources. Fails where the agent ends another than the culprit, task or request, or does not end that one, or where requests are dropped.
cases() {
  local name names code=0
  [ "$1" = light ] || sdk/java/install.sh || return
  names=$(./target/release/plimsoll case list --json | python3 -c 'import json, sys
kind, module = sys.argv[1] == "heavy", sys.argv[2]
print(*(c["case"] for c in json.load(sys.stdin)["cases"] if (c["heavy"] and c["case"] != module) == kind))' "$1" "${PLIMSOLL_HTTPD_MODULE:+c9}")
  for name in $names; do
    # A machine that is shared may have been busy with something else.
    if ./target/release/plimsoll case run "$name" --quick --remedy plimsoll || { again+=("case $name"); ./target/release/plimsoll case run "$name" --quick --remedy plimsoll; }; then
      echo "case $name ok"
    else
      code=1
    fi
  done
  return $code
}

# search_engines: the agent's tests with real nodes, one after the other, as each takes a gigabyte.
search_engines() {
  PLIMSOLL_REQUIRE_SEARCH=1 cargo test --workspace --locked --features "$features" -p plimsoll-agent --lib -- --ignored --test-threads 1 search:: 2>&1 |
    tee "$work/search.log" | tail -n 40
  [ "${PIPESTATUS[0]}" -eq 0 ] && grep -q '^test .*conforms.* ok$' "$work/search.log"
}

# lean: the release build is without kubernetes and etcd, and says so to who asks for them; the tests are built with both.
lean() {
  printf '[controller]\nstate = "%s/lean"\n[controller.etcd]\nendpoints = ["127.0.0.1:1"]\n[controller.rates]\n[pool.shop]\nservers = ["127.0.0.1:2"]\n' \
    "$work" >"$work/lean.toml"
  timeout 20 ./target/release/plimsoll controller --config "$work/lean.toml" 2>&1 | tee "$work/lean.log"
  grep -q 'controller.etcd.*build with `--features etcd`' "$work/lean.log" || return 1
  cat >"$work/lean.toml" <<T
[controller]
sentries = ["127.0.0.1:1"]
state = "$work/lean"
mode = "enforce"
[pool.shop]
servers = ["127.0.0.1:2"]
provision = { provider = "kubernetes", deployment = "web", port = 80, min = 2, max = 4 }
[class.default]
slo = { mean = "1s" }
T
  timeout 20 ./target/release/plimsoll controller --config "$work/lean.toml" 2>&1 | tee "$work/lean.log"
  grep -q 'pool `shop`.*build with `--features kubernetes`' "$work/lean.log" && echo "build lean ok"
}

# reproduce PAPER: the quick form of a study, remembering the id of every experiment that passed. What fails is run once
# more: simulations give the same again, but a real system that shares its machine may have been disturbed.
reproduce() {
  local again
  ./target/release/plimsoll reproduce "$1" --quick --json >"$work/study.json"
  again=$(judge "$1") && return
  echo "once more:$again"
  # shellcheck disable=SC2086
  ./target/release/plimsoll reproduce "$1" --quick --json ${again// / --experiment } >"$work/study.json"
  judge "$1" >/dev/null
}

# judge PAPER: reads study.json; prints ` ID` for each experiment that failed. One of which nothing was judged counts as not run, which
# the manifest notices, unless all that it says is why it could not: that is a skip, said aloud.
judge() {
  python3 - "$1" "$work/study.json" "$work/ids" <<'P'
import json, sys
failed = []
try:
    experiments = json.load(open(sys.argv[2]))["experiments"]
except ValueError:
    sys.exit("the study printed no results")
for experiment in experiments:
    rows = [row for row in experiment["rows"] if row["pass"] is not None]
    wrong = [row for row in rows if not row["pass"]]
    print(f"{experiment['id']}: {len(rows) - len(wrong)} of {len(rows)} judged rows pass", file=sys.stderr)
    for row in wrong:
        print(f"  FAIL {row}", file=sys.stderr)
    only = experiment["rows"][0]["what"] if len(experiment["rows"]) == 1 else ""
    if not rows and not only.startswith("not measured: "):
        print("  for reading only: counts as not run", file=sys.stderr)
    elif not rows:
        print(f"SKIPPED: {sys.argv[1]} {experiment['id']}, {only}", file=sys.stderr)
        print("experiment", sys.argv[1], experiment["id"], file=open(sys.argv[3], "a"))
    elif wrong:
        failed.append(experiment["id"])
    else:
        print("experiment", sys.argv[1], experiment["id"], file=open(sys.argv[3], "a"))
print("".join(f" {name}" for name in failed))
sys.exit(bool(failed) or not experiments)
P
}

# manifest: all that ci/manifest.txt names must have run. A test that silently no longer runs is a failure; one that the manifest
# does not know yet is said aloud.
manifest() {
  sort -u "$work/ids" >"$work/sorted"
  if $rewrite; then
    cp "$work/sorted" ci/manifest.txt
    echo "ci/manifest.txt rewritten: $(wc -l <ci/manifest.txt) ids"
    return
  fi
  comm -13 ci/manifest.txt "$work/sorted" | sed 's/^/not in ci\/manifest.txt, which .\/test --manifest rewrites: /'
  $all || return 0
  if comm -23 ci/manifest.txt "$work/sorted" | sed 's/^/did not run: /' | grep .; then
    return 1
  fi
}

finish() {
  printf '\n%s s in all; the longest steps:\n' "$SECONDS"
  printf '%s\n' "${times[@]}" | sort -rn | head -n 20
  for name in "${skipped[@]}"; do echo "SKIPPED: $name"; done
  for name in "${again[@]}"; do echo "run twice: $name"; done
  for name in "${failed[@]}"; do echo "FAILED: $name"; done
  echo "steps: $passed passed, ${#failed[@]} failed, ${#skipped[@]} skipped"
  [ ${#failed[@]} -eq 0 ]
}
