#!/usr/bin/env bash
# Installs the system packages that the tests need, and only those that are missing:
#
#   redis-server   the tests start private servers of their own, on free ports
#   libfaketime    the tests move a server's clock with it
#   gcc            the tests build the small library with which they cut a server's power
#   prometheus     its promtool tests the chart's alerts, and a private server answers the dashboard's queries
#
# With the argument `cluster`, those that a test cluster needs where no Docker is running:
#
#   docker.io      a private dockerd is started for each cluster
#   iptables, iproute2   connect it to the outside, and take the connection away again
#   debootstrap    makes the file systems of the node and of our base image
#
# Debian's packages of Redis, Prometheus and Docker start services and enable them at boot. Nobody asked for that here,
# so both are prevented. What was installed before is left as it is.
set -euo pipefail

readonly purpose=${1:-tests}
readonly policy=/usr/sbin/policy-rc.d
scratch=''

has_redis_server() {
    command -v redis-server >/dev/null
}

has_libfaketime() {
    compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null ||
        compgen -G '/usr/lib*/faketime/libfaketime.so.1' >/dev/null ||
        compgen -G '/usr/local/lib/faketime/libfaketime.so.1' >/dev/null
}

has_c_compiler() {
    command -v cc >/dev/null
}

has_prometheus() {
    command -v prometheus >/dev/null && command -v promtool >/dev/null
}

missing_packages() {
    if [[ $purpose == cluster ]]; then
        command -v dockerd >/dev/null || echo docker.io
        command -v docker >/dev/null || echo docker.io
        command -v debootstrap >/dev/null || echo debootstrap
        command -v iptables >/dev/null || echo iptables
        command -v ip >/dev/null || echo iproute2
        command -v tini >/dev/null || echo tini
        [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] || echo debian-archive-keyring
        return
    fi
    has_redis_server || echo redis-server
    has_libfaketime || echo libfaketime
    has_c_compiler || printf '%s\n' gcc libc6-dev
    has_prometheus || echo prometheus
}

# invoke-rc.d asks policy-rc.d before it starts a service; 101 means "not allowed". A policy that the
# machine already has is put back, whichever way this script ends.
forbid_service_starts() {
    scratch=$(mktemp -d)
    trap restore_policy EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if [[ -e $policy ]]; then
        cp -a "$policy" "$scratch/policy-rc.d"
    fi
    printf '#!/bin/sh\nexit 101\n' >"$scratch/forbid"
    install -m 0755 "$scratch/forbid" "$policy"
}

restore_policy() {
    if [[ -e $scratch/policy-rc.d ]]; then
        cp -a "$scratch/policy-rc.d" "$policy"
    else
        rm -f "$policy"
    fi
    rm -rf "$scratch"
}

# The package lists are fetched only when they do not know every package, or name files that are gone.
apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    local -a install=(apt-get install --yes --quiet --no-install-recommends)
    if apt-cache show "$@" >/dev/null 2>&1 && "${install[@]}" "$@"; then
        return
    fi
    apt-get update --quiet
    "${install[@]}" "$@"
}

disable_services() {
    local package
    for package in "$@"; do
        case $package in
        redis-server) systemctl disable --quiet redis-server.service ;;
        prometheus) systemctl disable --quiet prometheus.service ;;
        docker.io) systemctl disable --quiet docker.service docker.socket containerd.service ;;
        esac
    done
}

main() {
    local -a packages
    mapfile -t packages < <(missing_packages | sort --unique)
    if ((${#packages[@]} == 0)); then
        return
    fi
    if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
        echo "Please install by hand, as this needs root and apt-get: ${packages[*]} (Debian's package names)." >&2
        exit 1
    fi

    forbid_service_starts
    apt_install "${packages[@]}"
    if command -v systemctl >/dev/null; then
        disable_services "${packages[@]}"
    fi

    mapfile -t packages < <(missing_packages)
    if ((${#packages[@]} > 0)); then
        echo "Installed, but still not found where it is looked for: ${packages[*]}." >&2
        exit 1
    fi
}

main
