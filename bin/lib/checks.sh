#!/bin/bash
# The checks that compile nothing: format, imports of the Rust code, syntax of Ruby and shell files, spelling.
# Run by bin/test. All of them run, even after one has failed; the exit status says whether any did.
set -uo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

# shellcheck disable=SC2046
shell_lint() { shellcheck -x $(shell_files); }

shell_files() { grep -rlE '^(#!/bin/(ba)?sh|# shellcheck shell=)' bin .ci; }

ruby_syntax() {
  # shellcheck disable=SC2046
  "$ruby" bin/lib/syntax.rb Gemfile Rakefile $(find . -type f \( -name '*.rb' -o -name '*.ru' -o -name '*.gemspec' \) |
    grep -Ev '^\./(tmp|vendor)/|/target/' | sort)
}

shell_syntax() {
  local file status=0
  for file in $(shell_files); do bash -n "$file" || status=1; done
  return $status
}

for manifest in Cargo.toml bench/Cargo.toml crates/http/fuzz/Cargo.toml; do
  [ ! -e $manifest ] || check cargo fmt --manifest-path $manifest --all --check
done
check "$ruby" bin/lib/layers.rb
check "$ruby" bin/lib/structure.rb
check ruby_syntax
check shell_syntax
! have shellcheck || check shell_lint
! have codespell || check codespell
all_passed
