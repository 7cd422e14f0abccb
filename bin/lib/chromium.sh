#!/bin/bash
# Runs the specs that take a browser, in the lane that has Rails: bash bin/lib/chromium.sh
#
# Chromium is too large to be in the lane's root (80 MB to fetch, 290 MB installed). This installs it in memory,
# for this run only.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# shellcheck disable=SC2016 # for the shell in the lane
exec "$repo/bin/lane" rack3 bash -euc '
  apt-get -q update
  DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends chromium chromium-driver
  bash bin/lib/specs.sh spec/apps/cable_page_spec.rb spec/apps/system_test_spec.rb spec/logs/monitor_commands_spec.rb
'
