# Sourced by checks.sh and rust.sh: runs checks, and says which have failed.
# shellcheck shell=bash

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

failed=()

check() {
  printf '\n== %s\n' "$*"
  "$@" || failed+=("$*")
}

all_passed() {
  [ ${#failed[@]} -gt 0 ] || return 0
  printf '\nfailed:\n'
  printf '  %s\n' "${failed[@]}"
  return 1
}

cd "$repo" || exit 1
ruby_facts
export RUBY=$ruby_program
have cargo || PATH=$(dirname "$cargo"):$PATH
