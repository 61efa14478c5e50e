#!/usr/bin/env bash
# Builds our plug-in of a search engine and puts it where that looks for it:
#   ./install.sh solr DIRECTORY       two jars, into the directory `lib` of the home of a Solr
#   ./install.sh opensearch HOME      by the node's own bin/opensearch-plugin
# Without a place it goes where `plimsoll case run` looks for it.
set -euo pipefail
cd "$(dirname "$0")"
usage() { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] && [ $# -le 2 ] || usage
product=$1
case $product in solr | opensearch) ;; *) usage ;; esac
. ./jdk.sh
"${mvn[@]}" --quiet -DskipTests -pl "$product" -am package
version=$(sed -n 's|^  <version>\(.*\)</version>|\1|p' pom.xml)
built=$product/target/plimsoll-$product-$version
if [ "$product" = opensearch ] && [ $# -eq 2 ]; then
  exec "$2/bin/opensearch-plugin" install --batch "file://$PWD/$built.zip"
fi
place=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll/plugins/$product}
mkdir -p "$place"
cp "core/target/plimsoll-$version.jar" "$built.jar" "$place"
echo "installed plimsoll-$product $version in $place"
