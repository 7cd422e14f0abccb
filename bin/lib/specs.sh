#!/bin/bash
# Runs the specs with the `ruby` that is here, after setting it up: specs.sh [ARGUMENT...], see specs.rb
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cd "$repo"
bin/setup --test
choose_gems rack rackup rspec
[ -z "$missing_gems" ] || exec "${run[@]}" "$ruby" bin/lib/specs.rb "$@"
exec "$ruby" bin/lib/specs.rb "$@"
