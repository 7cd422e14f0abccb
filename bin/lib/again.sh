# Sourced by bin/test: a second run, alone, of the few examples that failed while lanes ran side by side.
# shellcheck shell=bash disable=SC2154

# More than so many are no coincidence.
most_again=4

# failed_examples LOG: what rspec's summary names, as arguments for rspec, a line each.
failed_examples() {
  sed -nE "s/^rspec '?([^' ]+)'? # .*/\1/p" "$1" | sort -u
}

# Whether a lane failed for nothing but a few examples: bin/lib/specs.sh names any other reason in a line of its own.
only_examples_failed() {
  local count
  ! grep -q '^specs\.sh: ' "$1" && ! grep -qE '^[0-9]+ examples?.*errors? occurred outside of examples' "$1" || return 1
  count=$(failed_examples "$1" | wc -l)
  [ "$count" -gt 0 ] && [ "$count" -le "$most_again" ]
}

# passes_again LANE: runs the lane's failed examples once more, with the machine to themselves, and says whether all pass. Then
# LANE.status says so too, and LANE.flaky names them: each is a race, in the server or in the example, that somebody has to
# look for.
passes_again() {
  local lane=$1 examples status seconds
  read -r status seconds <"$logs/$lane.status"
  [ "$status" != 0 ] && only_examples_failed "$logs/$lane.log" || return 1
  mapfile -t examples < <(failed_examples "$logs/$lane.log")
  printf '\n==== once more, alone, in lane %s: %s\n' "$lane" "${examples[*]}"
  run_examples "$lane" "${examples[@]}" 2>&1 | tee "$logs/$lane.again.log"
  [ "${PIPESTATUS[0]}" = 0 ] || return 1
  printf '%s\n' "${examples[@]}" >"$logs/$lane.flaky"
  printf '0 %s\n' "$seconds" >"$logs/$lane.status"
}
