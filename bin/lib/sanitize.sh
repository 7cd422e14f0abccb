#!/bin/bash
# Runs the crates' tests where wrong use of memory, or of memory that threads share, is seen: sanitize.sh [WAY...]
#
#   address  AddressSanitizer, with leaks
#   thread   ThreadSanitizer, for the crates that have threads, with a standard library built for it: takes a nightly rustc
#            with its sources
#   valgrind memcheck, for what the sanitizers' view of the standard library leaves out
#
# Without a name address is run. A sanitizer is an unstable option of rustc's, which RUSTC_BOOTSTRAP lets a stable
# compiler take too. For address the standard library is the precompiled one, which is not instrumented.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ways=("$@")
[ ${#ways[@]} -gt 0 ] || ways=(address)
host=$(rustc -vV | sed -n 's/^host: //p')
all=(-p fastrack-http -p fastrack-sys -p fastrack-engine)
crates=("${all[@]}")

# Only some ways set these: cargo's toolchain and options, and the tests'.
toolchain=() more=() tests=()

# tests_of WAY [WORDS...]: builds and runs the tests apart from the other ways', with what WORDS set in the environment.
tests_of() {
  local way=$1
  shift
  say "$way"
  env "$@" cargo ${toolchain[@]+"${toolchain[@]}"} test ${more[@]+"${more[@]}"} --locked --manifest-path "$repo/Cargo.toml" --target "$host" \
    --no-fail-fast --target-dir "$repo/target/sanitize/$way" "${crates[@]}" --lib --tests -- ${tests[@]+"${tests[@]}"}
}

sanitizer() {
  local way=$1
  shift
  # Without -Zbuild-std the standard library lacks the sanitizer's mark, which newer compilers refuse unless told so.
  tests_of "$way" RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=$way -Cunsafe-allow-abi-mismatch=sanitizer" "$@"
}

for way in "${ways[@]}"; do
  case $way in
    address) sanitizer address ASAN_OPTIONS=detect_stack_use_after_return=1:detect_leaks=1 ;;
    thread)
      rustup component add rust-src --toolchain nightly >/dev/null || die "there is no nightly rustc: rustup toolchain install nightly"
      # ThreadSanitizer must see the waiting in the standard library's locks and joins, or it takes what they guard for races.
      toolchain=(+nightly) more=(-Zbuild-std) crates=(-p fastrack-sys -p fastrack-engine)
      # ThreadSanitizer puts off signals to threads that wait.
      tests=(--skip a_signal_to_a_thread_is_handled_there_and_nowhere_else --test-threads=1)
      sanitizer thread "TSAN_OPTIONS=suppressions=$repo/bin/lib/tsan.supp"
      toolchain=() more=() tests=() crates=("${all[@]}")
      ;;
    valgrind) tests_of valgrind "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUNNER=valgrind -q --error-exitcode=99" ;;
    *) die "no such way: $way (address, thread and valgrind are there)" ;;
  esac
done
