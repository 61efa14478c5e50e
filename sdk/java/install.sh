#!/usr/bin/env bash
# Builds our plug-in of OpenSearch and has the node's own bin/opensearch-plugin install it:
#   ./install.sh HOME      where the node lies, as in /usr/share/opensearch
# Without a place its jars go where `plimsoll case run` looks for them.
set -euo pipefail
cd "$(dirname "$0")"
if [ $# -gt 1 ] || { [ $# -eq 1 ] && [ ! -x "$1/bin/opensearch-plugin" ]; }; then
  sed -n '2,4s/^# \{0,1\}//p' install.sh >&2
  exit 2
fi
. ./jdk.sh
"${mvn[@]}" --quiet -DskipTests -pl opensearch -am package
version=$(sed -n 's|^  <version>\(.*\)</version>|\1|p' pom.xml)
built=opensearch/target/plimsoll-opensearch-$version
if [ $# -eq 1 ]; then
  exec "$1/bin/opensearch-plugin" install --batch "file://$PWD/$built.zip"
fi
place=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll/plugins/opensearch
mkdir -p "$place"
cp "core/target/plimsoll-$version.jar" "$built.jar" "$place"
echo "installed plimsoll-opensearch $version in $place"
