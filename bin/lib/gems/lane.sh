#!/bin/bash
# The lane `gems`: builds the gems for Linux, installs them into bare systems, and serves apps there. Run by bin/test.
#
# A bare system is a Debian root with Ruby, Rack, Sinatra and Rails, without a compiler, without Ruby's headers, and without a
# network (unshare -n). For aarch64 it is entered through qemu-user. The gems for musl are loaded by musl's loader.
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
have readelf && have llvm-objdump || unavailable "it takes binutils and llvm"
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

# serve SUITE ARCHITECTURE RUBY GEM [EMULATOR]: installs the gem in a root and serves the apps.
serve() {
  local gem
  gem=$(package "$4")
  EMULATOR=${5:-} in_root "$(root_path "$1" "$2")" "$gem" "$3" /gems/smoke.rb --bare "/gems/${gem##*/}" "${apps[@]}" ${with_rails:+"$rails"}
}

# deploy ROOT GEM: as Heroku does it, up to the end of the dyno.
deploy() {
  local gem
  gem=$(package "$2")
  in_root "$1" "$gem" /bin/sh -c "ruby /gems/smoke.rb --bare '/gems/${gem##*/}' && ruby /gems/deploy.rb '/gems/${gem##*/}' /gems/heroku"
}

load_with_musl() {
  local platform=$1 libc=$2
  shift 2
  "$ruby" -r "$repo/bin/lib/gems/musl.rb" -e '
    platform, libc, *emulator = ARGV
    musl = Gems::Musl.new(Gems.platform(platform), libc: libc, emulator: emulator)
    files = Gems::NativeFile.of(Gems.platform(platform)).map(&:path)
    problems = files.flat_map { |file| musl.problems(file).map { |problem| "#{file}: #{problem}" } }
    puts problems, "#{files.size} files of #{platform} loaded by #{libc}"
    exit problems.empty? && files.any?' "$platform" "$libc" "$@"
}

# Those for macOS are built and looked at, which is all that can be done here.
platforms=(x86_64-linux-gnu aarch64-linux-gnu x86_64-linux-musl aarch64-linux-musl arm64-darwin x86_64-darwin)
for step in "${platforms[*]}" --emulation; do
  # shellcheck disable=SC2086
  bash "$repo/bin/lib/gems/setup.sh" $step || unavailable "what it takes could not be fetched"
done
rm -rf "$gems"
mkdir -p "$gems" "$mount_point"
for platform in "${platforms[@]}"; do count "build $platform" build "$platform"; done

# Bookworm's RubyGems is older than 3.3.22.
if count "make a bare bookworm" make_root bootstrap bookworm amd64; then
  count "x86_64-linux with Ruby 3.1 in a bare bookworm" serve bookworm amd64 /usr/bin/ruby x86_64-linux
  count "x86_64-linux deployed by Bundler with Ruby 3.1 in a bare bookworm" deploy "$(root_path bookworm amd64)" x86_64-linux
fi
if count "make a bare trixie" make_root bootstrap trixie amd64; then
  count "x86_64-linux-gnu with Ruby 3.3 in a bare trixie" serve trixie amd64 /usr/bin/ruby x86_64-linux-gnu
  count "x86_64-linux-gnu deployed by Bundler with Ruby 3.3 in a bare trixie" deploy "$(root_path trixie amd64)" x86_64-linux-gnu
  # Debian has no Rails for it.
  with_rails='' count "x86_64-linux-gnu with Ruby 3.4 in a bare trixie" serve trixie amd64 /usr/bin/ruby3.4 x86_64-linux-gnu
fi
# It has Rack 3.2.
if count "make a bare forky" make_root bootstrap forky amd64; then
  count "x86_64-linux-gnu with Ruby 3.3 in a bare forky" serve forky amd64 /usr/bin/ruby x86_64-linux-gnu
  count "x86_64-linux-gnu deployed by Bundler with Ruby 3.3 in a bare forky" deploy "$(root_path forky amd64)" x86_64-linux-gnu
fi
if count "make a bare bookworm for arm64" make_root unpack bookworm arm64; then
  count "aarch64-linux with Ruby 3.1 in a bare bookworm, emulated" serve bookworm arm64 /usr/bin/ruby3.1 aarch64-linux "$(emulator)"
fi
count "x86_64-linux-musl with musl" load_with_musl x86_64-linux-musl "$(musl_libc amd64)"
count "aarch64-linux-musl with musl, emulated" load_with_musl aarch64-linux-musl "$(musl_libc arm64)" "$(emulator)"

printf '\n'
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed:\n'
  printf '  %s\n' "${failed[@]}"
fi
printf '%s passed, %s failed\n' "$passed" "${#failed[@]}"
[ ${#failed[@]} = 0 ]
