#!/bin/bash
# Makes a Debian system for the lane `gems`: root.sh SUITE DIR
#
# Run by lane.sh inside a mount namespace of its own, so that its mounts are gone when it ends.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

suite=$1 target=$2

# The packages of a site that runs Sinatra, and no more.
packages=(ruby bundler ruby-rack ruby-sinatra)
[ "$suite" = bookworm ] || packages+=(ruby-rackup ruby-rack-session)
# It comes from experimental.
[ "$suite" != trixie ] || packages+=(ruby3.4)

in_root() {
  chroot "$target" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} "$@"
}

# An older debootstrap does not know the newest suites' names; all of them are made as sid is.
bootstrap_script() {
  local scripts=${DEBOOTSTRAP_DIR:-/usr/share/debootstrap}/scripts
  if [ -e "$scripts/$suite" ]; then echo "$scripts/$suite"; else echo "$scripts/sid"; fi
}

debootstrap --variant=minbase "$suite" "$target" "$(debian_mirror)" "$(bootstrap_script)"
# Proxy, dates and retries as the machine's own apt has them.
apt-config dump Acquire | grep -E '^Acquire::([A-Za-z]+::Proxy|Check-Valid-Until|Check-Date|Retries)' \
  >"$target/etc/apt/apt.conf.d/10machine" || true
printf 'path-exclude=/usr/share/%s/*\n' man doc locale >"$target/etc/dpkg/dpkg.cfg.d/lane"
echo force-unsafe-io >>"$target/etc/dpkg/dpkg.cfg.d/lane"
if [ "$suite" = trixie ]; then
  echo "deb $(debian_mirror) experimental main" >"$target/etc/apt/sources.list.d/experimental.list"
  printf 'Package: *\nPin: release a=experimental\nPin-Priority: 1\n' >"$target/etc/apt/preferences.d/experimental"
fi
mountpoint -q "$target/proc" || mount -t proc proc "$target/proc"
cp /etc/resolv.conf /etc/hosts "$target/etc/" 2>/dev/null || true
in_root apt-get -q update
in_root apt-get -qy install --no-install-recommends "${packages[@]}"
in_root apt-get clean
rm -rf "$target"/var/lib/apt/lists/*
