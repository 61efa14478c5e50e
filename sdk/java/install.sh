#!/usr/bin/env bash
# Builds our plug-in of a search engine and puts it where that looks for it:
#   ./install.sh solr [DIRECTORY]   two jars, for the directory `lib` of the home of a Solr
# Without a directory it goes where `plimsoll case run` looks for it.
set -euo pipefail
cd "$(dirname "$0")"
usage() { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] && [ $# -le 2 ] || usage
product=$1
directory=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll/plugins/$product}
case $product in solr) ;; *) usage ;; esac
. ./jdk.sh
"${mvn[@]}" --quiet -DskipTests -pl "$product" -am package
mkdir -p "$directory"
version=$(sed -n 's|^  <version>\(.*\)</version>|\1|p' pom.xml)
cp "core/target/plimsoll-$version.jar" "$product/target/plimsoll-$product-$version.jar" "$directory"
echo "installed plimsoll-$product $version in $directory"
