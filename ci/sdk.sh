#!/usr/bin/env bash
# The tests of the SDKs, sdk/LANG/test.sh. Prints `sdk LANG ok` for each that passes, and all that it said for one that does not.
#   ci/sdk.sh [LANG...]   runs them: all that there are, or those, as many at a time as there are processors
#   ci/sdk.sh check       exit 0 if the tools that they need are here; names what is missing
#   ci/sdk.sh install     installs what is missing through apt, as far as that has it
set -uo pipefail
cd "$(dirname "$0")/.."

limit_s=900
jdk_wanted=22

languages() {
  for language in rust c cpp go java python httpd; do
    [ -x "sdk/$language/test.sh" ] && echo "$language"
  done
}

# jdk: the home of the newest JDK that is new enough; nothing if there is none.
jdk() {
  local home version newest=$((jdk_wanted - 1)) found=
  for home in "${JAVA_HOME:-}" /usr/lib/jvm/* "$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")"; do
    [ -x "$home/bin/javac" ] || continue
    version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$home/release" 2>/dev/null)
    if [ "${version:-0}" -gt "$newest" ]; then
      newest=$version found=$home
    fi
  done
  echo "$found"
}

# missing: a word for each tool that is not here and that a language needs.
missing() {
  local language tool
  for language in $(languages); do
    case $language in
      rust) set -- cargo ;;
      c) set -- cc make ;;
      cpp) set -- g++ make ;;
      go) set -- go ;;
      java) set -- mvn; [ -n "$(jdk)" ] || echo jdk ;;
      httpd) set -- apxs apache2 make cargo python3 ;;
      python) set -- python3; python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv ;;
    esac
    for tool in "$@"; do
      command -v "$tool" >/dev/null || echo "$tool"
    done
  done | sort -u
}

explain() {
  for tool in $(missing); do
    case $tool in
      jdk) echo "missing: a JDK of version $jdk_wanted or later; put one under /usr/lib/jvm, or set JAVA_HOME" ;;
      cargo) echo "missing: cargo; https://rustup.rs installs it" ;;
      *) echo "missing: $tool" ;;
    esac
  done
}

# try LANGUAGE: says `sdk LANGUAGE ok`, or all that it said.
try() {
  local began=$SECONDS
  if timeout "$limit_s" "sdk/$1/test.sh" >"$logs/$1" 2>&1; then
    printf '%s, %s s\nsdk %s ok\n' "$(tail -n 1 "$logs/$1")" $((SECONDS - began)) "$1"
  else
    cat "$logs/$1"
    echo "sdk $1 FAILED"
    return 1
  fi
}

case ${1:-all} in
  check)
    explain
    [ -z "$(missing)" ]
    ;;
  install)
    export DEBIAN_FRONTEND=noninteractive
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    [ -z "$(missing)" ] || $sudo apt-get update -qq
    for tool in $(missing); do
      case $tool in
        cargo) packages=() ;; # Debian's is older than the workspace asks for
        cc) packages=(gcc libc6-dev) ;;
        go) packages=(golang-go) ;;
        apxs) packages=(apache2-dev) ;;
        mvn) packages=(maven) ;;
        # Debian 12 has none that is new enough; later releases do.
        jdk) packages=($(apt-cache pkgnames openjdk- | grep -E '^openjdk-[0-9]+-jdk-headless$' | sort -t- -k2n |
          awk -F- -v wanted=$jdk_wanted '$2 >= wanted' | tail -n 1)) ;;
        *) packages=("$tool") ;;
      esac
      [ ${#packages[@]} -eq 0 ] || $sudo apt-get install -y -qq "${packages[@]}"
    done
    explain
    [ -z "$(missing)" ]
    ;;
  *)
    [ $# -gt 0 ] || mapfile -t wanted < <(languages)
    [ $# -eq 0 ] || wanted=("$@")
    home=$(jdk)
    [ -z "$home" ] || export JAVA_HOME=$home PATH="$home/bin:$PATH"
    logs=$(mktemp -d)
    trap 'rm -rf "$logs"' EXIT
    for language in "${wanted[@]}"; do
      [ -x "sdk/$language/test.sh" ] || { echo "there is no sdk/$language/test.sh; see sdk/"; exit 2; }
    done
    export -f try
    export logs limit_s
    printf '%s\n' "${wanted[@]}" | xargs -P "$(nproc)" -I LANGUAGE bash -c 'try LANGUAGE'
    ;;
esac
