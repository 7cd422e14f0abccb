#!/bin/bash
# Runs the specs with the `ruby` that is here, with warnings on: specs.sh [RSPEC_ARGUMENT...]
# Run by bin/test, in each lane. A warning about the project's own code is a failure, and so is a run of no example.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cd "$repo"
bin/setup --test
choose_gems rack rackup rspec

mkdir -p tmp
output=$(mktemp tmp/specs.XXXXXX)
trap 'rm -f "$output"' EXIT

status=0
"${run[@]}" rspec --warnings "$@" 2>&1 | tee "$output" || status=$?

if grep -E "^($repo|\.)/.*: warning: " "$output" >"$output.warnings"; then
  say "Ruby warned about the project's own code:"
  sort -u "$output.warnings" >&2
  status=1
fi
rm -f "$output.warnings"
if grep -qE '^0 examples' "$output"; then
  say "no example was run"
  status=1
fi
exit $status
