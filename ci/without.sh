#!/usr/bin/env bash
# Runs a test program for cargo, unless it is one of those that run elsewhere.
#   ci/without.sh NAME... -- PROGRAM ARGUMENT...
names=()
while [ "$1" != -- ]; do
  names+=("$1")
  shift
done
shift
program=$(basename "$1")
for name in "${names[@]}"; do
  # Cargo adds a hash.
  [ "${program%-*}" = "$name" ] && exit 0
done
exec "$@"
