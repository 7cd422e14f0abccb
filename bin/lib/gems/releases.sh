# Sourced by setup.sh and lane.sh: sources of the Rubies that Debian has no packages of.
# shellcheck shell=bash disable=SC2154

# Debian went from 3.1 to 3.3, and has no 4.0 yet.
# shellcheck disable=SC2034
released=(3.2 4.0)

# newest SERIES: its last release, which is fetched where FASTRACK_RUBY_SOURCE names nothing nearer, and the SHA-256 that its authors
# have published of the .tar.gz (https://www.ruby-lang.org/en/downloads/releases/).
newest() {
  case $1 in
    3.2) echo 3.2.11 b3eeabd6636f334531db3ffdc3229eb05e524740e6c84fdc043720573cf2f8b2 ;;
    4.0) echo 4.0.6 837d299e8f7ddf2be31a229a7a7e019d354979825117989acb3b32b1a9be262a ;;
  esac
}

# release SERIES: the archive that is kept here; nothing if there is none.
release() { find "$cache/releases" -maxdepth 1 -name "ruby$1_*.tar.*" 2>/dev/null | sort -V | tail -n 1; }

# get_release SERIES: from FASTRACK_RUBY_SOURCE, a folder of releases or a git repository that has their tags; else from where
# Ruby's authors put them. Whoever has none goes without, and says so.
get_release() {
  local series=$1 new=$cache/releases/new
  [ -z "$(release "$series")" ] || return 0
  rm -rf "$new"
  mkdir -p "$new"
  if [ -n "${FASTRACK_RUBY_SOURCE:-}" ]; then
    copy_release "$series" || export_release "$series" || rm -f "$new"/*.tar.*
  else
    download_release "$series" || rm -f "$new"/*.tar.*
  fi
  find "$new" -name '*.tar.*' -exec mv {} "$cache/releases/" \;
  rm -rf "$new"
  [ -n "$(release "$series")" ] || { say "no source of Ruby $series${FASTRACK_RUBY_SOURCE:+ in $FASTRACK_RUBY_SOURCE}: without it"; return 1; }
}

# Archives are called as Debian calls those of its Rubies.
copy_release() {
  local archive version
  archive=$(find "$FASTRACK_RUBY_SOURCE" -maxdepth 1 -name "ruby-$1.*.tar.*" | grep -E '/ruby-[0-9.]+\.tar\.[a-z0-9]+$' | sort -V | tail -n 1)
  [ -n "$archive" ] || return 1
  version=${archive##*/ruby-}
  cp "$archive" "$new/ruby$1_${version%.tar.*}.tar.${version##*.}"
}

# As the authors make a release of it, without the gems that come with one.
export_release() {
  local tag version
  tag=$(git -C "$FASTRACK_RUBY_SOURCE" tag 2>/dev/null | grep -xE "v${1//./[._]}[._][0-9]+" | sort -V | tail -n 1)
  [ -n "$tag" ] || return 1
  if ! have autoconf || ! have bison; then
    say "Ruby from git takes autoconf and bison"
    return 1
  fi
  version=${tag#v} version=${version//_/.}
  say "Ruby $version from git"
  mkdir "$new/ruby-$version"
  git -C "$FASTRACK_RUBY_SOURCE" archive "$tag" | tar -x -C "$new/ruby-$version" || return 1
  (cd "$new/ruby-$version" && ./autogen.sh --install) >&2 || return 1
  tar -czf "$new/ruby$1_$version.tar.gz" -C "$new" "ruby-$version"
}

download_release() {
  local version published sum archive
  read -r version published <<<"$(newest "$1")"
  archive=$new/ruby$1_$version.tar.gz
  say "Ruby $version from cache.ruby-lang.org"
  curl --fail --silent --show-error --location --connect-timeout 10 --speed-time 30 --speed-limit 1000 --retry 2 --output "$archive" \
    "https://cache.ruby-lang.org/pub/ruby/$1/ruby-$version.tar.gz" >&2 || return 1
  sum=$(sha256sum "$archive" | cut -d' ' -f1)
  [ "$sum" = "$published" ] || { say "what came is not Ruby $version as its authors have published it: its SHA-256 is $sum, not $published"; return 1; }
}
