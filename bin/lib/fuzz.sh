#!/bin/bash
# Runs each fuzz target for some seconds, from its seeds: bash bin/lib/fuzz.sh [SECONDS] [TARGET...]
#
# An ordinary compiler will do, because nothing here needs a sanitizer: the crates have no unsafe code. For long hunts
# cargo-fuzz is the better tool, see docs/development.md. Where libFuzzer cannot be built, nothing is run, and the crates'
# own tests of the same properties have to do.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

seconds=${1:-5}
shift || true
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
  for file in "$repo"/crates/*/fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi

if ! have c++; then
  say "skipped, there is no C++ compiler to build libFuzzer with"
  exit
fi

# libFuzzer needs these flags to see where the code goes. cargo-fuzz passes the same. With a target named, build scripts and
# macros do without.
host=$(rustc -vV | sed -n 's/^host: //p')
flags=(-Cpasses=sancov-module)
for setting in level=4 inline-8bit-counters pc-table; do flags+=("-Cllvm-args=-sanitizer-coverage-$setting"); done
for fuzz in "$repo"/crates/*/fuzz; do
  RUSTFLAGS="${flags[*]} -Cdebug-assertions=on" \
    cargo build --release --locked --manifest-path "$fuzz/Cargo.toml" --target "$host" --target-dir "$repo/target/fuzz" --bins
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
status=0
for target in "${targets[@]}"; do
  mkdir "$scratch/$target"
  seeds=("$repo"/crates/*/fuzz/seeds/"$target")
  [ -e "${seeds[0]}" ] || seeds=("$repo/crates/http/fuzz/seeds/head")
  # The input is printed in base64, so that the log of the failure has it.
  if TMPDIR=$scratch "$repo/target/fuzz/$host/release/$target" -max_total_time="$seconds" -max_len=512 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$scratch/" "$scratch/$target" "${seeds[@]}" >"$scratch/log" 2>&1; then
    say "$target, $(sed -n 's/^stat::number_of_executed_units: *//p' "$scratch/log") runs, nothing found"
  else
    say "$target has found something"
    tail -n 60 "$scratch/log"
    status=1
  fi
done
exit $status
