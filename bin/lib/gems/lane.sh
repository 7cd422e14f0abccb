#!/bin/bash
# The lane `gems`: builds the gems of all platforms, installs those for this machine into bare systems, and serves apps there. Run by
# bin/test.
#
# A bare system is a Debian root with Ruby, Rack and Sinatra, without a compiler, without Ruby's headers, and without a network
# (unshare -n). The files for other systems are looked at: .github/workflows/gems.yml runs them.
# shellcheck disable=SC2154 # of the files that are sourced
set -uo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/../check.sh"
# shellcheck source-path=SCRIPTDIR
. "$repo/bin/lib/lane.sh"
# shellcheck source-path=SCRIPTDIR
. "$repo/bin/lib/gems/apt.sh"

# shellcheck disable=SC2034 # said by lane.sh
lane=gems cache=$lane_cache/gems gems=$repo/tmp/gems
can_have_root
unshare -n true 2>/dev/null || unavailable "no network namespaces (unshare -n)"
{ have readelf && have llvm-objdump; } || unavailable "it takes binutils and llvm"
[ "$(uname -m)" = x86_64 ] || unavailable "it takes an x86_64 machine"

build() { "$ruby" -r "$repo/bin/lib/gems/platform_gem.rb" -e 'Gems::PlatformGem.new(Gems.platform(ARGV[0])).build(ARGV[1])' "$1" "$gems"; }

# root_path SUITE: a change of lane-root.sh makes new roots.
root_path() { echo "$cache/roots/$1-$(cksum <"$repo/bin/lib/lane-root.sh" | cut -d' ' -f1)"; }

# make_bare SUITE ROOT: with the packages of a site that runs Sinatra, and no more.
make_bare() {
  local packages=(ruby bundler ruby-rack ruby-sinatra)
  [ "$1" = bookworm ] || packages+=(ruby-rackup ruby-rack-session)
  [ "$1" != trixie ] || packages+=(ruby3.4)
  unshare -m bash "$repo/bin/lib/lane-root.sh" "$1" "$2" "${packages[@]}"
}

# serve SUITE GEM [RUBY]: installs the gem in a root, serves the examples, and deploys one as Heroku does. The changes are in memory
# and end with the mount namespace.
serve() {
  local gem
  ensure_root "$(root_path "$1")" make_bare "$1"
  gem=$(echo "$gems"/rhebok-rs-*-"$2.gem")
  # shellcheck disable=SC2016 # for the shell in the namespaces
  unshare -mn bash -euc '
    lower=$1 layers=$2 repo=$3 gem=$4 ruby=$5 root=$2/root
    mount -t tmpfs tmpfs "$layers"
    mkdir "$layers/upper" "$layers/work" "$root"
    mount -t overlay overlay -o "lowerdir=$lower,upperdir=$layers/upper,workdir=$layers/work" "$root"
    mkdir -p "$root/gems"
    chmod 1777 "$root/tmp"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    cp -R "$gem" "$repo/bin/lib/gems/smoke.rb" "$repo/examples/"{heroku,hello,sinatra} "$root/gems/"
    run() { env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 chroot "$root" "$@"; }
    gem=/gems/${gem##*/}
    run "$ruby" /gems/smoke.rb --bare "$gem" "/gems/hello/config.ru=Fastrack serves this page" "/gems/sinatra/config.ru=served by worker"
    [ "$ruby" != ruby ] || run ruby /gems/smoke.rb --deploy "/gems/heroku=Dyno web.1, worker" "$gem"
  ' lane "$(root_path "$1")" "$cache/mnt" "$repo" "$gem" "${3:-ruby}"
}

# musl_has_all CPU: whether musl defines what the files take that Ruby does not.
musl_has_all() {
  "$ruby" -r "$repo/bin/lib/gems/native_file.rb" -r "$repo/bin/lib/gems/symbols.rb" -e '
    libc = Gems::Symbols.new(Dir["#{ARGV[0]}/**/{ld-musl-*.so.1,libc.so}"].find { |file| File.file?(file) })
    files = Gems::NativeFile.of(Gems.platform(ARGV[1])).map(&:path)
    missing = files.flat_map { |file| Gems::Symbols.new(file).needed - libc.defined }.uniq
    puts "#{files.size} files, musl lacks #{missing.size} symbols: #{missing.join(", ")}"
    exit missing.empty? && files.any?' "$cache/musl/$1" "$1-linux-musl"
}

platforms=(x86_64-linux-gnu aarch64-linux-gnu x86_64-linux-musl aarch64-linux-musl arm64-darwin x86_64-darwin)
bash "$repo/bin/lib/gems/setup.sh" "${platforms[@]}" || unavailable "what it takes could not be fetched"
rm -rf "$gems"
mkdir -p "$gems" "$cache/mnt"
for platform in "${platforms[@]}"; do check build "$platform"; done

# Bookworm's RubyGems is older than 3.3.22, forky has Rack 3.2. Ruby 3.4 is in no release yet.
check serve bookworm x86_64-linux
check serve trixie x86_64-linux-gnu
check serve trixie x86_64-linux-gnu ruby3.4
check serve forky x86_64-linux-gnu
if [ ! -d "$cache/musl/aarch64" ]; then
  use_apt "$cache/apt" amd64 bookworm
  unpack_packages "$cache/musl/x86_64" musl:amd64
  unpack_packages "$cache/musl/aarch64" musl:arm64
fi
for cpu in x86_64 aarch64; do check musl_has_all "$cpu"; done
all_passed
