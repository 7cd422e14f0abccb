# Sourced by bin/test: lanes that are run at the same time.
# shellcheck shell=bash disable=SC2154

# side_by_side LANE...: runs run_lane for each of them, all at once, and waits for all. Leaves in $logs what each printed
# (LANE.log) and its status and seconds (LANE.status). A signal that ends the script ends them too.
side_by_side() {
  local lane prefix
  running=()
  trap 'stop_lanes INT; exit 130' INT
  trap 'stop_lanes TERM; exit 143' TERM HUP
  # Each gets a process group of its own. Without that bash would have it ignore SIGINT, and so would every server that
  # it starts.
  set -m
  for lane; do
    if [ $# -gt 1 ]; then prefix="$lane | "; else prefix=; fi
    timed_lane "$lane" "$prefix" </dev/null &
    running+=($!)
  done
  set +m
  # A trap is run between two waits only, and a wait that was cut short by it is not a lane's end.
  for lane in "${running[@]}"; do wait "$lane"; done
  trap - INT TERM HUP
}

timed_lane() {
  local lane=$1 begun=$SECONDS status
  printf '\n==== lane %s\n' "$lane"
  run_lane "$lane" 2>&1 | tee "$logs/$lane.log" | mark "$2"
  status=${PIPESTATUS[0]}
  printf '%s %s\n' "$status" $((SECONDS - begun)) >"$logs/$lane.status"
}

# Line by line, so that one can watch: awk and sed would wait for more, each system's in a way of its own.
mark() {
  local line
  if [ -z "$1" ]; then cat; return; fi
  while IFS= read -r line || [ -n "$line" ]; do printf '%s%s\n' "$1" "$line"; done
}

# Of the jobs that bash knows: one that has just been started may not be in `running` yet.
stop_lanes() {
  local group
  for group in $(jobs -p); do kill "-$1" -- "-$group" 2>/dev/null; done
  wait
}
