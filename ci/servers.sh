#!/usr/bin/env bash
# The servers and tools that are not ours and that the checks run the sentry beside.
#   ci/servers.sh check       exit 0 if all are here, but for databases and etcd; names what is missing
#   ci/servers.sh databases   exit 0 if PostgreSQL, MariaDB, and an Apache httpd with PHP, in it and beside it, are here, which the tests overload
#   ci/servers.sh install     apt and go; stops what apt starts
set -uo pipefail
export PATH="$PATH:$(go env GOPATH 2>/dev/null)/bin"

missing() {
  for tool in nginx haproxy wrk go grpcurl python3; do
    command -v "$tool" >/dev/null || echo "$tool"
  done
  python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
}

have_postgresql() {
  command -v initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb'
}

have_mariadb() {
  command -v mariadbd || [ -x /usr/sbin/mariadbd ]
}

have_php() {
  [ -x /usr/sbin/apache2 ] && compgen -G '/usr/sbin/php-fpm*' && compgen -G '/usr/lib/apache2/modules/libphp*'
}

case ${1:-check} in
  databases) have_postgresql >/dev/null && have_mariadb >/dev/null && have_php >/dev/null ;;
  check)
    lacking=$(missing | xargs)
    [ -z "$lacking" ] || { echo "missing: $lacking"; exit 1; }
    ;;
  install)
    set -e
    export DEBIAN_FRONTEND=noninteractive
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    packages=()
    for tool in $(missing); do
      case $tool in
        go) packages+=(golang-go) ;;
        grpcurl) ;;
        *) packages+=("$tool") ;;
      esac
    done
    have_postgresql >/dev/null || packages+=(postgresql)
    have_mariadb >/dev/null || packages+=(mariadb-server)
    have_php >/dev/null || packages+=(apache2 php-fpm libapache2-mod-php)
    command -v etcd >/dev/null || packages+=(etcd-server)
    if [ ${#packages[@]} -gt 0 ]; then
      $sudo apt-get update -qq
      # apt would start the daemons that it installs; the checks start their own, on ports of their own.
      policy=/usr/sbin/policy-rc.d
      if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
        $sudo chmod +x $policy
        trap '$sudo rm -f $policy' EXIT
      fi
      $sudo apt-get install -y -qq "${packages[@]}"
    fi
    command -v grpcurl >/dev/null || go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3
    ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
