#!/bin/bash
# The checks that compile nothing: format, imports, syntax of Ruby and shell files, spelling.
# Run by bin/test. All of them run, even after one has failed; the exit status says whether any did.
set -uo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

# shellcheck disable=SC2046
shell_lint() { shellcheck -x $(grep -rlE '^(#!/bin/(ba)?sh|# shellcheck shell=)' bin .ci); }

ruby_checks() {
  # shellcheck disable=SC2046
  "$ruby" bin/lib/checks.rb Gemfile Rakefile $(find . -type f \( -name '*.rb' -o -name '*.ru' -o -name '*.gemspec' \) |
    grep -Ev '^\./(tmp|vendor)/|/target/' | sort)
}

for manifest in Cargo.toml bench/Cargo.toml crates/*/fuzz/Cargo.toml; do
  [ ! -e "$manifest" ] || check cargo fmt --manifest-path "$manifest" --all --check
done
check ruby_checks
! have shellcheck || check shell_lint
! have codespell || check codespell
all_passed
