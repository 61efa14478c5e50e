# Sourced by test.sh and bench.sh: finds a JDK of at least 22 and Maven, as JAVA_HOME and mvn, or says what to install.
release_of() { # prints the number of the release, 0 if there is no JDK
  [ -x "$1/bin/javac" ] && sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$1/release" 2>/dev/null || true
}

best=0
for home in "${JAVA_HOME:-}" /usr/lib/jvm/*; do
  release=$(release_of "$home")
  if [ -n "$home" ] && [ "${release:-0}" -ge 22 ] && [ "$release" -gt "$best" ]; then
    best=$release
    JAVA_HOME=$home
    [ "$home" = "${asked:=${JAVA_HOME:-}}" ] && break
  fi
done
if [ "$best" -eq 0 ]; then
  echo "the Java SDK needs a JDK 22 or later: install one (for example the package openjdk-25-jdk or temurin-25-jdk) and set JAVA_HOME to it" >&2
  exit 1
fi
if ! command -v mvn >/dev/null; then
  echo "the Java SDK is built with Maven: apt-get install maven" >&2
  exit 1
fi
export JAVA_HOME
mvn=(mvn --batch-mode --no-transfer-progress -Dstyle.color=never)
echo "with the JDK $best in $JAVA_HOME"
