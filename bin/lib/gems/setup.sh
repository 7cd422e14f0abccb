#!/bin/bash
# Gets what it takes to compile the gems of other platforms: setup.sh [PLATFORM...]  (rake native:setup)
#
# zig as the linker (from PyPI), cargo-zigbuild and zopfli (from crates.io), Rust's standard library for each target (by rustup),
# and the headers of each Ruby that Debian has packages of: for Linux those of the packages for amd64 and arm64, for macOS what
# Ruby's configure makes of the packages' sources (half an hour, once). Of Ruby 3.2 and 4.0, which Debian has not, configure
# makes all, of their releases. All but Rust's is put into ~/.cache/fastrack/gems. Files that are there are not fetched again.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
# shellcheck source-path=SCRIPTDIR
. "$repo/bin/lib/gems/apt.sh"

# The clang headers of newer ones are too new for the libclang of Debian bookworm, with which bindgen reads Ruby's headers.
zig_version=0.13.0
zigbuild_version=0.20.1
zopfli_version=0.8.3
# Releases of Debian that may have Rubies. Others come from FASTRACK_RUBIES.
suites=(bookworm trixie forky experimental)
# Debian went from 3.1 to 3.3, and has no 4.0 yet: the last release, and the SHA-256 that its authors have published of the .tar.gz
# (https://www.ruby-lang.org/en/downloads/releases/).
released=(
  "3.2.11 b3eeabd6636f334531db3ffdc3229eb05e524740e6c84fdc043720573cf2f8b2"
  "4.0.6 837d299e8f7ddf2be31a229a7a7e019d354979825117989acb3b32b1a9be262a"
)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/fastrack/gems
mkdir -p "$cache"
exec 9>"$cache/lock"
! have flock || flock 9

get_zig() {
  local place=$cache/tools/python
  [ -x "$place/ziglang/zig" ] && return
  say "zig $zig_version"
  python3 -m pip install --quiet --root-user-action=ignore --target "$place.new" "ziglang==$zig_version" >&2
  rm -rf "$place"
  mv "$place.new" "$place"
}

# get_program CRATE VERSION: cargo-zigbuild, and zopfli, with which gems are compressed.
get_program() {
  [ -x "$cache/tools/bin/$1" ] && return
  say "$1 $2 (a minute or two)"
  cargo install --quiet --locked --root "$cache/tools" --version "$2" "$1" >&2
}

# Targets of the platforms, by their table.
rust_targets() {
  "$ruby" -r "$repo/bin/lib/gems/platforms.rb" \
    -e 'names = ARGV; puts Gems::PLATFORMS.select { |one| names.empty? || names.include?(one.name) }.map(&:rust_target)' "$@"
}

get_targets() {
  local target
  have rustup || { say "no rustup: Rust's standard library for other platforms is yours to install"; return; }
  for target in $(rust_targets "$@"); do
    # To its end: rustup would fail to write where nobody reads any more.
    rustup target list --installed | grep -x "$target" >/dev/null || rustup target add "$target" >&2
  done
}

# Every Ruby that there are packages of, for both architectures.
get_headers() {
  local rubies arch
  debian_here || { say "no Debian packages here: Ruby's headers come from the Rubies that FASTRACK_RUBIES names"; return; }
  [ ! -e "$cache/headers/complete" ] || return 0
  say "headers of Debian's Rubies"
  use_apt "$cache/apt" amd64 "${suites[@]}"
  rm -rf "$cache/headers.new"
  rubies=$(private_apt apt-cache pkgnames ruby | grep -E '^ruby[0-9]+\.[0-9]+-dev$')
  for arch in amd64 arm64; do
    # shellcheck disable=SC2046,SC2086
    unpack_packages "$cache/headers.new/$arch" $(printf "%s:$arch " $rubies)
  done
  find "$cache/headers.new" -mindepth 1 -type d \( -path '*/usr/lib' -o -path '*/usr/share' \) -prune -exec rm -rf {} +
  : >"$cache/headers.new/complete"
  rm -rf "$cache/headers"
  mv "$cache/headers.new" "$cache/headers"
}

# Of the same Rubies for macOS, which Debian has no packages for.
get_darwin_headers() {
  local platforms name
  platforms=$(printf '%s\n' "${@:-arm64-darwin x86_64-darwin}" | tr ' ' '\n' | sed -n '/-darwin$/p' | xargs)
  [ -n "$platforms" ] && debian_here || return 0
  get_sources
  for name in "$cache"/sources/*.tar.*; do
    # shellcheck disable=SC2086
    make_headers "$name" $platforms
  done
}

# make_headers ARCHIVE PLATFORM...: as cross_headers.sh calls them; without unpacking the archive where all are there.
make_headers() {
  local archive=$1 api=${1##*/ruby} platform
  shift
  for platform; do
    [ -d "$cache/made/$platform/${api%%_*}" ] || FASTRACK_HEADERS='' bash "$repo/bin/lib/gems/cross_headers.sh" "$archive" "$platform"
  done
}

# get_release VERSION SHA256 ARCHIVE: from the folder that FASTRACK_RUBY_SOURCE names, else from where Ruby's authors put it. Setup goes on
# without a release that it cannot have, and says so.
get_release() {
  local version=$1 published=$2 archive=$3
  [ ! -e "$archive" ] || return 0
  mkdir -p "$cache/releases"
  if [ -n "${FASTRACK_RUBY_SOURCE:-}" ]; then
    cp "$FASTRACK_RUBY_SOURCE/ruby-$version.tar.gz" "$archive.new"
  else
    say "Ruby $version from cache.ruby-lang.org"
    curl --fail --silent --show-error --location --connect-timeout 10 --speed-time 30 --speed-limit 1000 --retry 2 --output "$archive.new" \
      "https://cache.ruby-lang.org/pub/ruby/${version%.*}/ruby-$version.tar.gz" >&2
  fi || { say "no source of Ruby $version: without it"; return 1; }
  sha256sum --check --status <<<"$published  $archive.new" || { say "ruby-$version.tar.gz is not as its authors have published it"; return 1; }
  mv "$archive.new" "$archive"
}

# For all platforms, of the Rubies that Debian has neither packages nor sources of.
get_released_headers() {
  local one version published archive platforms
  debian_here || return 0
  platforms=$(printf '%s\n' "${@:-x86_64-linux aarch64-linux arm64-darwin x86_64-darwin}" | tr ' ' '\n' | sed 's/-linux-.*/-linux/' | sort -u | xargs)
  for one in "${released[@]}"; do
    read -r version published <<<"$one"
    archive=$cache/releases/ruby${version%.*}_$version.tar.gz
    # shellcheck disable=SC2086
    ! get_release "$version" "$published" "$archive" || make_headers "$archive" $platforms
  done
}

# As Ruby's authors have released them.
get_sources() {
  local name
  [ ! -e "$cache/sources/complete" ] || return 0
  say "sources of Debian's Rubies"
  use_apt "$cache/apt" amd64 "${suites[@]}"
  rm -rf "$cache/sources.new"
  mkdir "$cache/sources.new"
  for name in $(private_apt apt-cache pkgnames ruby | grep -E '^ruby[0-9]+\.[0-9]+$'); do
    (cd "$cache/sources.new" && get_source "$name") || say "no sources of $name: without it for macOS"
  done
  find "$cache/sources.new" -type f ! -name '*.orig.tar.*' -delete
  : >"$cache/sources.new/complete"
  rm -rf "$cache/sources"
  mv "$cache/sources.new" "$cache/sources"
}

# The newest version that the mirror has, into the working directory: of a release that changes it may have no longer what its
# list says.
get_source() {
  local version
  for version in $(private_apt apt-cache showsrc "$1" | sed -n 's/^Version: //p' | sort -Vru); do
    private_apt apt-get source --download-only "$1=$version" >&2 && return
  done
  return 1
}

# A Mac builds for Macs, with its own linker.
if [ "$(uname)" != Darwin ]; then
  get_zig
  get_program cargo-zigbuild "$zigbuild_version"
fi
get_program zopfli "$zopfli_version"
get_targets "$@"
get_headers
# A Mac has Rubies of its own.
if [ "$(uname)" != Darwin ]; then
  get_darwin_headers "$@"
  get_released_headers "$@"
fi
