#!/bin/bash
# Makes a bare system for the lane `gems` with a Ruby that Debian has no packages of: built_root.sh RELEASE CACHE DIR
#
# RELEASE is the archive of Ruby's source. The Ruby is built beside DIR; in DIR there are then it, the packages of this machine's
# Debian that it needs, and Rack and Sinatra. Run by lane.sh.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
# shellcheck source-path=SCRIPTDIR
. "$repo/bin/lib/gems/apt.sh"

release=$1 cache=$2 target=$3
source=$target.build/source build=$target.build/build installed=$target.build/installed
made='' step=''

# Whoever ends this before it is done leaves neither a compiler running nor half a gigabyte behind.
clean_up() {
  [ -z "$step" ] || kill -- "-$step" 2>/dev/null || true
  [ -z "$step" ] || wait "$step" 2>/dev/null || true
  rm -rf "$target.build" "$target.apt"
  [ -n "$made" ] || rm -rf "$target"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# in_group COMMAND...: bash acts on a signal only between commands, or while it waits; and the command may have started others.
in_group() {
  set -m
  "$@" </dev/null &
  step=$!
  set +m
  wait "$step"
  step=''
}

# They are pure Ruby: it does not matter which Ruby Debian has packed them for.
gems_suite=trixie
gems=(
  ruby-rack ruby-rackup ruby-rack-session
  ruby-sinatra ruby-mustermann ruby-rack-protection ruby-tilt ruby-ruby2-keywords ruby-base64
)

# A Ruby without openssl or psych would be built, and could install no gem.
check_libraries() {
  local package missing=()
  for package in gcc make libssl-dev libyaml-dev zlib1g-dev libffi-dev; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] || die "missing; run: apt-get install ${missing[*]}"
}

# As ruby-build does, without the extensions that are only for Ruby's own tests. Without HAVE_BASERUBY the gems that come with a
# release are not asked for: git has none.
build() {
  rm -rf "$target.build"
  mkdir -p "$source" "$build"
  tar -xf "$release" -C "$source" --strip-components=1
  rm -rf "$source/ext/-test-"
  cd "$build"
  "$source/configure" --prefix=/usr/local --disable-install-doc --without-gmp --with-baseruby="$(command -v "$ruby")" optflags=-O2 debugflags=-g0
  make -j "$(nproc)" main
  make install HAVE_BASERUBY=no DESTDIR="$installed"
}

# Packages of the libraries that it is linked to.
libraries() {
  local library
  find "$installed" -type f \( -path '*/bin/ruby' -o -name '*.so' \) -exec ldd {} + | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
    while read -r library; do dpkg-query -S "$library" "/usr$library" 2>/dev/null || true; done | cut -d: -f1 | sort -u
}

fill() {
  local suite
  # shellcheck disable=SC1091
  suite=$(. /etc/os-release; echo "$VERSION_CODENAME")
  bash "$repo/bin/lib/gems/root.sh" unpack "$suite" amd64 "$(libraries | xargs)" "$target"
  cp -R "$installed/usr/local" "$target/usr/"
  # Nothing is compiled there.
  rm -rf "$target/usr/local/include"
}

# Where this Ruby looks for them.
fill_in_gems() {
  use_apt "$cache/apt" amd64 "$gems_suite"
  unpack_packages "$target" "${gems[@]}"
  cp -R "$target"/usr/share/rubygems-integration/all/. "$(echo "$target"/usr/local/lib/ruby/gems/*)/"
  [ -n "$(find "$target/usr/local/lib/ruby" -path '*/specifications/*' -name 'logger-*.gemspec')" ] || fill_in_logger
}

# Sinatra takes it. It is Ruby's own up to 3.4, and one of the gems that come with a release from 4.0 on.
fill_in_logger() {
  local ruby=$target/usr/local/lib/ruby debian=$target.build/logger/usr/lib/ruby
  unpack_packages "$target.build/logger" libruby3.3
  cp -R "$debian"/3.3.0/logger{,.rb} "$ruby/site_ruby/"
  cp "$debian"/gems/3.3.0/specifications/default/logger-*.gemspec "$(echo "$ruby"/gems/*)/specifications/default/"
}

check_libraries
in_group build
in_group fill
in_group fill_in_gems
made=yes
