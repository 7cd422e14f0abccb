#!/bin/bash
# Runs the specs once more while the garbage collector is on the loose: stress.sh MODE [RSPEC_ARGUMENT...]
#
#   compact  all objects move at every collection, and there is one before and after each call of the app; without
#            arguments the whole suite is run
#   stress   a collection at each allocation of the extension's; without arguments spec/http, spec/rack and
#            spec/connections are run
#
# In another lane: bin/lane rack3 bash bin/lib/stress.sh compact
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mode=${1:-}
case $mode in
  compact) specs=() ;;
  stress) specs=(spec/http spec/rack spec/connections) ;;
  *) die "usage: stress.sh compact|stress [RSPEC_ARGUMENT...]" ;;
esac
shift
[ $# = 0 ] || specs=("$@")

# Examples tagged :quiet are left out: they measure the collector itself, or would last for ever.
FASTRACK_GC=$mode exec bash "$repo/bin/lib/specs.sh" --tag ~quiet ${specs[@]+"${specs[@]}"}
