# Sourced by lane.sh: Debian systems with Ruby and nothing to compile with, kept in ~/.cache/fastrack/gems.
# shellcheck shell=bash disable=SC2154

cache=$lane_cache/gems

# What a site that runs Sinatra and Rails has, and no more.
root_packages() {
  echo ruby bundler ruby-rack ruby-sinatra ruby-rails
  [ "$1" = bookworm ] || echo ruby-rackup ruby-rack-session
  # In no release yet.
  [ "$1" != trixie ] || echo ruby3.4
}

# root_path SUITE: a change of these files makes new roots.
root_path() { echo "$cache/roots/$1-$(cat "$repo"/bin/lib/gems/root{,s}.sh | cksum | cut -d' ' -f1)"; }

# make_root SUITE: a half-made root is never taken for a whole one, it gets its name last.
make_root() {
  local root
  root=$(root_path "$1")
  [ ! -d "$root" ] || return 0
  say "making $root (its log is beside it)"
  mkdir -p "$cache/roots"
  rm -rf --one-file-system "$root.making"
  if ! unshare -m bash "$repo/bin/lib/gems/root.sh" "$1" "$(root_packages "$1" | xargs)" "$root.making" >"$root.log" 2>&1; then
    tail -n 20 "$root.log" >&2
    return 1
  fi
  mv "$root.making" "$root"
}

# musl of a processor.
musl_libc() { ls "$cache/musl/$1"/lib/ld-musl-*.so.1 2>/dev/null || ls "$cache/musl/$1"/usr/lib/*-linux-musl/libc.so; }
