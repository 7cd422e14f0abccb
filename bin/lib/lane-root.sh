#!/bin/bash
# Makes a Debian root: lane-root.sh SUITE DIR [PACKAGE...]
#
# Without packages it is one that lanes run in: trixie for `rack3` and `ruby34`, forky for `rack32`. gems/lane.sh names those of
# its bare systems.
#
# Run by lane.sh inside a mount namespace of its own, so that whatever is mounted here (by debootstrap too) is gone when
# it ends. A root's name carries the checksum of this file: any change here makes a new root.
set -euo pipefail

suite=$1 target=$2
shift 2

# The mirror that this machine's own apt uses (security updates come from another place), from the lists of packages that
# it has fetched.
machines_mirror() {
  # shellcheck disable=SC2016 # apt-get itself fills the form in
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | awk '!/security/ && !found++'
}
mirror=${FASTRACK_DEBIAN_MIRROR:-$(machines_mirror)}
if [ -z "$mirror" ]; then
  apt-get -q update >&2
  mirror=$(machines_mirror)
fi

# Ruby 3.3 with Rack 3.1 (forky: 3.2) and rackup, the tools and apps of the specs and the benchmark, and what building the
# extension takes besides Rust, which is the machine's.
packages=(
  ruby ruby-dev ruby-rack ruby-rackup ruby-rspec rake rake-compiler ruby-rb-sys bundler
  gcc libc6-dev make libclang-dev
  curl git nginx-light procps strace libserver-starter-perl systemd
  ruby-sinatra ruby-rack-session ruby-rack-timeout rails ruby-pg postgresql
  puma unicorn valgrind
)

case $suite in
  trixie) packages+=(ruby3.4 ruby3.4-dev) ;;
  forky) packages+=(ruby-roda) ;;
esac
[ $# = 0 ] || packages=("$@")

# An older debootstrap does not know the newest suites' names; all of them are made as sid is.
bootstrap_script() {
  local scripts=${DEBOOTSTRAP_DIR:-/usr/share/debootstrap}/scripts
  if [ -e "$scripts/$suite" ]; then echo "$scripts/$suite"; else echo "$scripts/sid"; fi
}

step() { printf 'lane-root: %s\n' "$*" >&2; }

in_root() {
  chroot "$target" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} "$@"
}

configure_apt() {
  # Proxy, dates and retries as the machine's own apt has them.
  apt-config dump Acquire | grep -E '^Acquire::([A-Za-z]+::Proxy|Check-Valid-Until|Check-Date|Retries)' \
    >"$target/etc/apt/apt.conf.d/10machine" || true
  cat >"$target/etc/apt/apt.conf.d/20lane" <<'CONF'
APT::Install-Recommends "false";
APT::Install-Suggests "false";
Acquire::Languages "none";
CONF
  echo "deb $mirror $suite main" >"$target/etc/apt/sources.list"
  # Ruby 3.4 comes from experimental, which is pinned below everything else.
  [ "$suite" != trixie ] || echo "deb $mirror experimental main" >>"$target/etc/apt/sources.list"
  printf 'Package: *\nPin: release a=experimental\nPin-Priority: 1\n' >"$target/etc/apt/preferences.d/experimental"
}

configure_dpkg() {
  # No service may be started by an installation, and nobody reads manuals here.
  printf '#!/bin/sh\nexit 101\n' >"$target/usr/sbin/policy-rc.d"
  chmod 755 "$target/usr/sbin/policy-rc.d"
  cat >"$target/etc/dpkg/dpkg.cfg.d/lane" <<'CONF'
force-unsafe-io
path-exclude=/usr/share/man/*
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/locale/*
CONF
  # The tests start clusters of their own; one made by the package would only take room.
  mkdir -p "$target/etc/postgresql-common"
  echo 'create_main_cluster = false' >"$target/etc/postgresql-common/createcluster.conf"
}

step "debootstrap $suite"
debootstrap --variant=minbase --include=ca-certificates "$suite" "$target" "$mirror" "$(bootstrap_script)" >&2
configure_apt
configure_dpkg
mountpoint -q "$target/proc" || mount -t proc proc "$target/proc"
mount --rbind /dev "$target/dev"
cp /etc/resolv.conf "$target/etc/resolv.conf" 2>/dev/null || true
cp /etc/hosts "$target/etc/hosts"
step "apt-get update"
in_root apt-get -q update >&2
step "packages of $suite"
in_root apt-get -qy install "${packages[@]}" >&2
in_root apt-get clean
rm -rf "$target"/var/lib/apt/lists/*
