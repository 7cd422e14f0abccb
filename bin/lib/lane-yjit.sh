#!/bin/bash
# Gives a lane's root a Ruby that has YJIT: lane-yjit.sh ROOT RUST
#
# Debian builds Ruby without, and who runs Ruby for speed turns it on. Only its library is replaced, by one from the same
# source with the same options: it is off there, too, unless it is enabled (RUBY_YJIT_ENABLE=1, Rails). RUST is the machine's.
#
# Run by lane.sh inside a mount namespace of its own, when lane-root.sh is done.
set -euo pipefail

root=$1 rust=$2

mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir -p "$root/opt/rust"
mount --bind -o ro "$rust" "$root/opt/rust"
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true

printf 'lane-root: Ruby with YJIT\n' >&2
chroot "$root" /usr/bin/env -i PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
  DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} /bin/bash -euo pipefail -s >&2 <<'BUILD'
version=$(ruby -e 'puts RUBY_VERSION')
series=${version%.*}
library=$(ruby -rrbconfig -e 'puts File.join(RbConfig::CONFIG["libdir"], RbConfig::CONFIG["LIBRUBY_SO"])')
[ -e "$library" ] || library=$(dirname "$library")/$(gcc -print-multiarch)/$(basename "$library")
[ -e "$library" ] || { echo "no library of Ruby at $library"; exit 1; }

sed 's/^deb /deb-src /' /etc/apt/sources.list >/etc/apt/sources.list.d/source.list
apt-get -q update
apt-get -qy install autoconf bison libgmp-dev patch xz-utils zlib1g-dev
build=$(mktemp -d /tmp/ruby.XXXXXX)
cd "$build"
# A mirror may lack the description of a source that it has; the archives are checked all the same.
apt-get -q source --download-only "ruby$series" || true
mkdir source
tar -xf ruby"$series"_"$version".orig.tar.xz -C source --strip-components=1
tar -xf ruby"$series"_"$version"-*.debian.tar.xz -C source
cd source
grep -v '^#' debian/patches/series | while read -r name; do patch -p1 -s <"debian/patches/$name"; done
[ -x configure ] || autoconf
ruby -rrbconfig -rshellwords -e '
  options = Shellwords.split(RbConfig::CONFIG["configure_args"]).reject { |option| option.match?(/\A--disable-yjit|_FOR_BUILD=|\Atarget_alias=/) }
  exec("./configure", *options, "--enable-yjit", "--disable-install-doc")'
make -j"$(nproc)" "$(basename "$library")"
strip --strip-debug "$(basename "$library")"
cp "$(basename "$library")" "$library"
cd /
rm -rf "$build" /etc/apt/sources.list.d/source.list
ruby --yjit -e 'exit RubyVM::YJIT.enabled?'
ruby -ropenssl -rbigdecimal -e 'exit !RubyVM::YJIT.enabled?'
apt-get clean
rm -rf /var/lib/apt/lists/*
BUILD
