#!/bin/bash
# The lane `gems`: builds the gems for Linux, installs them into bare systems, and serves apps there. Run by bin/test.
#
# A bare system is a Debian root with Ruby, Rack, Sinatra and Rails, without a compiler, without Ruby's headers, and without a
# network (unshare -n). The files for other systems are looked at: the workflow runs
# them.
set -uo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
# shellcheck source-path=SCRIPTDIR
. "$repo/bin/lib/lane.sh"
# shellcheck source-path=SCRIPTDIR
. "$repo/bin/lib/gems/roots.sh"
# shellcheck disable=SC2154
mount_point=$cache/mnt

# shellcheck disable=SC2034 # said by lane.sh
lane=gems
can_have_root
unshare -n true 2>/dev/null || unavailable "no network namespaces (unshare -n)"
{ have readelf && have llvm-objdump; } || unavailable "it takes binutils and llvm"
[ "$(uname -m)" = x86_64 ] || unavailable "it takes an x86_64 machine"

passed=0
failed=()
gems=$repo/tmp/gems
apps=("/gems/hello.ru=Fastrack serves this page" "/gems/sinatra.ru=served by worker")
with_rails=yes
rails="/gems/rails.ru=<h1>Rails"

# count NAME COMMAND...: runs one of the lane's tests. Its status is the test's: what cannot be made is not tried.
count() {
  local name=$1
  shift
  printf '\n== %s\n' "$name"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed+=("$name")
    return 1
  fi
}

build() { "$ruby" -r "$repo/bin/lib/gems/platform_gem.rb" -e 'Gems::PlatformGem.new(Gems.platform(ARGV[0])).build(ARGV[1])' "$1" "$gems"; }

package() { echo "$gems"/rhebok-rs-*-"$1.gem"; }

# in_root ROOT GEM COMMAND...: runs it where the gem is in /gems; the root stays as it was.
in_root() {
  local root=$1 gem=$2
  shift 2
  unshare -mn bash "$repo/bin/lib/gems/enter.sh" "$root" "$mount_point" "$repo" "$gem" "$@"
}

# serve SUITE RUBY GEM: installs the gem in a root and serves the apps.
serve() {
  local gem
  gem=$(package "$3")
  in_root "$(root_path "$1")" "$gem" "$2" /gems/smoke.rb --bare "/gems/${gem##*/}" "${apps[@]}" ${with_rails:+"$rails"}
}

# deploy ROOT GEM: as Heroku does it, up to the end of the dyno.
deploy() {
  local gem
  gem=$(package "$2")
  in_root "$1" "$gem" /bin/sh -c "ruby /gems/smoke.rb --bare '/gems/${gem##*/}' && ruby /gems/deploy.rb '/gems/${gem##*/}' /gems/heroku"
}

# has_all LIBC PLATFORM: whether musl defines what the files take that Ruby does not.
has_all() {
  "$ruby" -r "$repo/bin/lib/gems/native_file.rb" -r "$repo/bin/lib/gems/symbols.rb" -e '
    libc = Gems::Symbols.new(ARGV[0])
    files = Gems::NativeFile.of(Gems.platform(ARGV[1])).map(&:path)
    missing = files.flat_map { |file| Gems::Symbols.new(file).needed - libc.defined }.uniq
    puts "#{files.size} files, musl lacks #{missing.size} symbols: #{missing.join(", ")}"
    exit missing.empty? && files.any?' "$1" "$2"
}

# Those for macOS are built and looked at, which is all that can be done here.
platforms=(x86_64-linux-gnu aarch64-linux-gnu x86_64-linux-musl aarch64-linux-musl arm64-darwin x86_64-darwin)
for step in "${platforms[*]}" --musl; do
  # shellcheck disable=SC2086
  bash "$repo/bin/lib/gems/setup.sh" $step || unavailable "what it takes could not be fetched"
done
rm -rf "$gems"
mkdir -p "$gems" "$mount_point"
for platform in "${platforms[@]}"; do count "build $platform" build "$platform"; done

# Bookworm's RubyGems is older than 3.3.22.
if count "make a bare bookworm" make_root bookworm; then
  count "x86_64-linux with Ruby 3.1 in a bare bookworm" serve bookworm /usr/bin/ruby x86_64-linux
  count "x86_64-linux deployed by Bundler with Ruby 3.1 in a bare bookworm" deploy "$(root_path bookworm)" x86_64-linux
fi
if count "make a bare trixie" make_root trixie; then
  count "x86_64-linux-gnu with Ruby 3.3 in a bare trixie" serve trixie /usr/bin/ruby x86_64-linux-gnu
  count "x86_64-linux-gnu deployed by Bundler with Ruby 3.3 in a bare trixie" deploy "$(root_path trixie)" x86_64-linux-gnu
  # Debian has no Rails for it.
  with_rails='' count "x86_64-linux-gnu with Ruby 3.4 in a bare trixie" serve trixie /usr/bin/ruby3.4 x86_64-linux-gnu
fi
# It has Rack 3.2.
if count "make a bare forky" make_root forky; then
  count "x86_64-linux-gnu with Ruby 3.3 in a bare forky" serve forky /usr/bin/ruby x86_64-linux-gnu
  count "x86_64-linux-gnu deployed by Bundler with Ruby 3.3 in a bare forky" deploy "$(root_path forky)" x86_64-linux-gnu
fi
for cpu in x86_64 aarch64; do count "$cpu-linux-musl beside musl" has_all "$(musl_libc "$cpu")" "$cpu-linux-musl"; done

printf '\n'
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed:\n'
  printf '  %s\n' "${failed[@]}"
fi
printf '%s passed, %s failed\n' "$passed" "${#failed[@]}"
[ ${#failed[@]} = 0 ]
