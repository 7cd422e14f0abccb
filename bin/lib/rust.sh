#!/bin/bash
# Lints and tests of the Rust code: rust.sh [--all]. With --all also the back end of macOS, other targets, models and a
# little fuzzing. Run by bin/test. All of them run, even after one has failed; the exit status says whether any did.
set -uo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

rust_checks() {
  clippy --manifest-path "$1" --workspace --all-targets
  check cargo test --manifest-path "$1" --workspace --locked
}

# Debian 12 has none for the Rust that bin/setup installs there. A machine that tests for others must not go without.
clippy() {
  if [ -n "${CI:-}" ] || cargo clippy --version >/dev/null 2>&1; then
    check cargo clippy "$@" --locked -- -D warnings
  else
    printf '\n== skipped: no clippy for %s\n' "$*"
  fi
}

# The back end of macOS, as far as Linux can run it: through the same crate.
portable_checks() {
  local crates=(-p fastrack-sys -p fastrack-engine -p fastrack-monitor --features portable)
  clippy "${crates[@]}" --all-targets
  check cargo test "${crates[@]}" --locked
}

# The crates without Ruby compile for these, too. Their standard libraries come from rustup.
targets=(aarch64-apple-darwin x86_64-apple-darwin x86_64-unknown-linux-musl aarch64-unknown-linux-musl)

# By one run of cargo, which has work for all processors then.
target_checks() {
  local target found=()
  for target in "${targets[@]}"; do
    if has_target "$target"; then
      found+=(--target "$target")
    else
      printf '\n== skipped: target %s, which rustup does not have here\n' "$target"
    fi
  done
  [ ${#found[@]} = 0 ] || clippy "${found[@]}" -p fastrack-http -p fastrack-access-log -p fastrack-sys -p fastrack-engine -p fastrack-monitor
}

has_target() {
  [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || { have rustup && rustup --quiet target add "$1" >&2; }
}

all_checks() {
  portable_checks
  target_checks
  # Models take 70 s of one processor, and fuzzing takes the other for a while.
  local models
  models=$(mktemp)
  timeout 600 cargo run --locked -p fastrack-engine --example model >"$models" 2>&1 &
  check bash bin/lib/fuzz.sh 4
  check models $! "$models"
}

models() {
  local status=0
  wait "$1" || status=$?
  cat "$2"
  rm "$2"
  return $status
}

rust_checks Cargo.toml
[ ! -e bench/Cargo.toml ] || rust_checks bench/Cargo.toml
[ "${1:-}" != --all ] || all_checks
all_passed
