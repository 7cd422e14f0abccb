# Sourced by setup.sh: sources of the Rubies that Debian has no packages of.
# shellcheck shell=bash disable=SC2154

# Debian went from 3.1 to 3.3, and has no 4.0 yet.
# shellcheck disable=SC2034
released=(3.2 4.0)

# newest SERIES: its last release, and the SHA-256 that its authors have published of the .tar.gz
# (https://www.ruby-lang.org/en/downloads/releases/).
newest() {
  case $1 in
    3.2) echo 3.2.11 b3eeabd6636f334531db3ffdc3229eb05e524740e6c84fdc043720573cf2f8b2 ;;
    4.0) echo 4.0.6 837d299e8f7ddf2be31a229a7a7e019d354979825117989acb3b32b1a9be262a ;;
  esac
}

# release SERIES: where its archive is kept here.
release() { echo "$cache/releases/ruby$1_$(newest "$1" | cut -d' ' -f1).tar.gz"; }

# get_release SERIES: from the folder that FASTRACK_RUBY_SOURCE names, else from where Ruby's authors put it. Setup goes on without a
# release that it cannot have, and says so.
get_release() {
  local version published archive
  read -r version published <<<"$(newest "$1")"
  archive=$(release "$1")
  [ ! -e "$archive" ] || return 0
  mkdir -p "$cache/releases"
  if [ -n "${FASTRACK_RUBY_SOURCE:-}" ]; then
    cp "$FASTRACK_RUBY_SOURCE/ruby-$version.tar.gz" "$archive.new"
  else
    say "Ruby $version from cache.ruby-lang.org"
    curl --fail --silent --show-error --location --connect-timeout 10 --speed-time 30 --speed-limit 1000 --retry 2 --output "$archive.new" \
      "https://cache.ruby-lang.org/pub/ruby/$1/ruby-$version.tar.gz" >&2
  fi || { say "no source of Ruby $version: without it"; return 1; }
  sha256sum --check --status <<<"$published  $archive.new" || { say "ruby-$version.tar.gz is not as its authors have published it"; return 1; }
  mv "$archive.new" "$archive"
}
