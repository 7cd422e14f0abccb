#!/bin/bash
# Runs a command in a lane's root: lane-enter.sh LANE ROOT MOUNT_POINT REPO RUST CARGO_HOME COMMAND...
#
# It must have a mount namespace of its own (lane.sh gives it one): all that is mounted here is gone with it. The root is
# the lower layer of an overlay whose upper one is in memory, so nothing that a test does to the system outlives it.
set -euo pipefail

lane=$1 lower=$2 layers=$3 repo=$4 rust=$5 cargo_home=$6
shift 6

mount -t tmpfs tmpfs "$layers"
root=$layers/root
mkdir "$layers/upper" "$layers/work" "$root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$layers/upper,workdir=$layers/work" "$root"

mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
cp /etc/hosts /etc/resolv.conf "$root/etc/"

# Paths in the repository are the same inside and outside: what a tool prints can be opened.
mkdir -p "$root$repo" "$root/opt/rust" "$root/opt/cargo"
mount --bind "$repo" "$root$repo"
mount --bind -o ro "$rust" "$root/opt/rust"
mount --bind -o ro "$cargo_home" "$root/opt/cargo"

# Debian's programs start /usr/bin/ruby, and its pure-Ruby gems are for all its Rubies.
[ "$lane" != ruby34 ] || ln -sf ruby3.4 "$root/usr/bin/ruby"
ruby=()
if [ "$lane" = ruby40 ]; then
  mkdir -p "$root$FASTRACK_RUBY40"
  mount --bind -o ro "$FASTRACK_RUBY40" "$root$FASTRACK_RUBY40"
  ln -sf "$FASTRACK_RUBY40/bin/ruby" "$root/usr/bin/ruby"
  own_gems=$(chroot "$root" /usr/bin/ruby --disable-gems -rrbconfig -e 'c = RbConfig::CONFIG; puts File.join(c["rubylibprefix"], "gems", c["ruby_version"])')
  ruby=("GEM_PATH=$own_gems:/usr/share/rubygems-integration/all")
fi

cd "$root$repo"
# shellcheck disable=SC2016
exec chroot "$root" /usr/bin/env -i \
  PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" ${CI:+CI="$CI"} ${SPEC_OPTS:+SPEC_OPTS="$SPEC_OPTS"} \
  ${TEST_PATIENCE:+TEST_PATIENCE="$TEST_PATIENCE"} ${TEST_PROCESSES:+TEST_PROCESSES="$TEST_PROCESSES"} \
  CARGO_HOME=/opt/cargo CARGO_NET_OFFLINE=true FASTRACK_LANE="$lane" FASTRACK_NO_INSTALL=yes ${ruby[@]+"${ruby[@]}"} \
  /bin/sh -c 'cd "$1" && shift && exec "$@"' sh "$repo" "$@"
