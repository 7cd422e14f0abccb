#!/bin/bash
# Makes Ruby's headers for platforms whose Rubies do not run here: cross_headers.sh SOURCE [PLATFORM...]  (rake native:headers)
#
# SOURCE is a release of Ruby, unpacked or as a tar archive. Its configure finds out what the platform has, with zig, which has
# the headers of each platform's libc. Nothing of Ruby is compiled. The platforms are arm64-darwin, x86_64-darwin, x86_64-linux
# and aarch64-linux; without a name all of them. The headers go to ~/.cache/fastrack/gems/made, where headers.rb looks.
# Headers that are there are kept.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/fastrack/gems
made=${FASTRACK_HEADERS:-$cache/made}
zig=$cache/tools/python/ziglang/zig

[ -e "${1:-}" ] || die "usage: cross_headers.sh SOURCE [PLATFORM...]"
[ -x "$zig" ] || die "zig is missing; run: rake native:setup"
source=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
shift
[ $# -gt 0 ] || set -- x86_64-linux aarch64-linux arm64-darwin x86_64-darwin

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# configure does not look at most of the files. They are left out.
unpack() {
  mkdir "$work/source"
  tar -xf "$source" -C "$work/source" --strip-components=1 --exclude='*/test/*' --exclude='*/spec/*' --exclude='*/gems/*' --exclude='*/doc/*'
  source=$work/source
}

# The platform's names for Ruby's configure and for zig.
names() {
  case $1 in
    arm64-darwin) echo aarch64-apple-darwin20 aarch64-macos ;;
    x86_64-darwin) echo x86_64-apple-darwin20 x86_64-macos ;;
    *-linux) echo "${1%-linux}-unknown-linux-gnu" "${1%-linux}-linux-gnu.2.17" ;;
    *) die "no such platform: $1" ;;
  esac
}

# compiler ZIG_TARGET: a program that configure can call, whatever is in the path of zig. Of macOS zig has the C library alone: without
# the frameworks that Ruby itself is linked to, which its headers do not tell of, each of configure's programs is.
compiler() {
  cat >"$work/cc" <<SH
#!/bin/sh
for word; do
  shift
  case \$word in -lobjc | -framework | *Foundation | Security) ;; *) set -- "\$@" "\$word" ;; esac
done
exec $(printf %q "$zig") cc -target $1 "\$@"
SH
  chmod +x "$work/cc"
}

# autoconf's own findings about a platform's libc hold for all Rubies.
keep_findings() {
  grep -E '^ac_cv_(func|header|type|member|have_decl|lib)_' "$work/config.cache" >"$made/$1/findings.new" || true
  mv "$made/$1/findings.new" "$made/$1/findings"
}

make_headers() {
  local platform=$1 api=$2 host target folder making
  folder=$made/$platform/$api making=$made/$platform/making-$api
  read -r host target <<<"$(names "$platform")"
  say "Ruby $api's headers for $platform (a few minutes)"
  compiler "$target"
  mkdir -p "$made/$platform"
  rm -rf "$work/build" "$making"
  mkdir "$work/build"
  cp "$made/$platform/findings" "$work/config.cache" 2>/dev/null || rm -f "$work/config.cache"
  if ! (cd "$work/build" && CC=$work/cc CXX=false AR="$zig ar" RANLIB="$zig ranlib" CFLAGS=-O0 \
    "$source/configure" --cache-file="$work/config.cache" --build="$("$source/tool/config.guess")" --host="$host" \
    --with-baseruby="$(command -v "$ruby")" --enable-shared --disable-install-doc --without-gmp >"$made/$platform/log" 2>&1); then
    tail -n 20 "$made/$platform/log" >&2
    die "Ruby's configure failed for $platform; all that it said is in $made/$platform/log"
  fi
  mkdir -p "$making/arch/ruby"
  cp -R "$source/include" "$making/include"
  cp "$work"/build/.ext/include/*/ruby/config.h "$making/arch/ruby/"
  keep_findings "$platform"
  rm -rf "$folder"
  mv "$making" "$folder"
}

[ -d "$source" ] || unpack
[ -x "$source/configure" ] || die "$source has no configure: it takes a release of Ruby"
api=$(sed -n 's/^#define RUBY_API_VERSION_M[AI][A-Z]*R \([0-9]*\)$/\1/p' "$source/include/ruby/version.h" | paste -sd .)
for platform; do
  [ -e "$made/$platform/$api/arch/ruby/config.h" ] || make_headers "$platform" "$api"
done
