# Sourced by bin/lane: the Debian root that lanes other than `system` run in, and the way into it.
# shellcheck shell=bash disable=SC2154

lane_cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fastrack

# Shells that were open before rustup ran do not have it on PATH.
have cargo || PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin

# The status of bin/lane that says: this lane cannot be had on this machine (EX_UNAVAILABLE of sysexits(3)).
lane_unavailable=69

unavailable() { say "lane $lane is not to be had here: $*"; exit $lane_unavailable; }

lane_suite() { case $lane in rack32) echo forky ;; *) echo trixie ;; esac; }

# The scripts that make the root.
lane_scripts() {
  echo "$repo/bin/lib/lane-root.sh"
  [ "$(lane_suite)" != forky ] || echo "$repo/bin/lib/lane-yjit.sh"
}

lane_root() { echo "$lane_cache/$(lane_suite)-$(lane_scripts | xargs cat | cksum | cut -d' ' -f1)"; }

make_root() {
  unshare -m bash "$repo/bin/lib/lane-root.sh" "$(lane_suite)" "$1" || return
  [ "$(lane_suite)" != forky ] || unshare -m bash "$repo/bin/lib/lane-yjit.sh" "$1" "$(rustc --print sysroot)"
}

# The needs of a root, looked at before the attempt to make one.
can_have_root() {
  [ "$(uname)" = Linux ] || unavailable "it takes Linux"
  [ "$(id -u)" = 0 ] || unavailable "it takes root, for chroot(2) and mount(2)"
  have debootstrap || unavailable "it takes debootstrap; run: apt-get install debootstrap"
  have cargo || unavailable "cargo is missing"
  unshare -m true 2>/dev/null || unavailable "no mount namespaces (unshare -m)"
}

# Whether there is a Ruby to bring along.
can_have_ruby() {
  [ -n "${FASTRACK_RUBY40:-}" ] || unavailable "it takes a Ruby of yours: FASTRACK_RUBY40=PREFIX, where PREFIX/bin/ruby is"
  case $FASTRACK_RUBY40 in /*) ;; *) unavailable "FASTRACK_RUBY40 must be an absolute path" ;; esac
  [ -x "$FASTRACK_RUBY40/bin/ruby" ] || unavailable "there is no $FASTRACK_RUBY40/bin/ruby"
}

# ensure_root ROOT COMMAND...: has the command make the root if it is not there. A half-made one is never taken for a whole one: it gets its
# name last.
ensure_root() {
  local root=$1 making=$1.making log=$1.log
  shift
  mkdir -p "$(dirname "$root")"
  # A lock for each root: two lanes' roots can be made at once.
  exec 9>"$root.lock"
  flock 9
  if [ ! -d "$root" ]; then
    rm -rf --one-file-system "$making"
    say "making the root of lane $lane in $root (a few minutes, once; its log is $log)"
    if ! "$@" "$making" 2>&1 9>&- | tee "$log" | grep '^lane-root: ' >&2; then
      tail -n 20 "$log" >&2
      rm -rf --one-file-system "$making"
      # On a machine that tests for others a lane that was lost on the way must not look like a lane that passed.
      [ -z "${CI:-}" ] || die "lane $lane: its root could not be made"
      unavailable "its root could not be made"
    fi
    mv "$making" "$root"
  fi
  flock -u 9
  exec 9>&-
}

# Fetches the crates: the root may not reach the registry. The command in the lane may do without.
fetch_crates() {
  local quiet=(--locked --quiet --manifest-path "$repo/Cargo.toml")
  cargo fetch --offline "${quiet[@]}" 2>/dev/null || cargo fetch "${quiet[@]}" || say "cargo fetch failed; going on"
}

# Runs a command in the root, in a mount namespace that ends with it.
run_in_root() {
  local sysroot cargo_home
  sysroot=$(rustc --print sysroot)
  [ "$sysroot" != /usr ] || unavailable "it shares Rust with the machine, and only rustup's can be shared"
  cargo_home=${CARGO_HOME:-${HOME:-/root}/.cargo}
  mkdir -p "$lane_cache/mnt"
  exec unshare -m bash "$repo/bin/lib/lane-enter.sh" "$lane" "$(lane_root)" "$lane_cache/mnt" "$repo" "$sysroot" "$cargo_home" "$@"
}
