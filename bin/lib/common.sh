# Sourced by the scripts of bin/ (bash 3.2 will do, macOS has nothing newer): where things are, and how to say things.
# shellcheck shell=bash

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
ruby=${RUBY:-ruby}

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$@"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Sets the variables that facts.rb prints, by one start of Ruby. missing_gems are those of
# the arguments, names of features, that Ruby does not find; cargo is a path or nothing.
# shellcheck disable=SC2034
ruby_facts() {
  local facts
  ruby_version='' ruby_api='' ruby_program='' ruby_fits='' ruby_headers='' platform='' system='' build_key='' dlext=''
  libclang='' cargo='' missing_gems=''
  facts=$("$ruby" "$repo/bin/lib/facts.rb" "$@") || die "cannot run $ruby"
  eval "$facts"
}

# Sets run to the words that start a gem's program: with the gems that Ruby sees where they are complete, else by
# Bundler. Debian's are complete without RubyGems.org, which Bundler would ask.
choose_gems() {
  ruby_facts "$@"
  # shellcheck disable=SC2034
  if [ -z "$missing_gems" ]; then
    run=("$ruby" -I "$repo/lib" -S)
  else
    export BUNDLE_GEMFILE=$repo/Gemfile
    run=("$ruby" -S bundle exec)
  fi
}
