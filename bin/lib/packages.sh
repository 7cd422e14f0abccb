# Sourced by bin/setup: what the machine lacks, and how Debian's packages give it.
# shellcheck shell=bash disable=SC2154

# Missing things: `wanted` has their Debian packages, `lacking` has words for every other machine.
wanted=()
lacking=()

# need WHAT PACKAGE COMMAND...: notes that WHAT is missing when COMMAND fails.
need() {
  local what=$1 package=$2
  shift 2
  if ! "$@" >/dev/null 2>&1; then
    case " ${wanted[*]-} " in *" $package "*) ;; *) wanted+=("$package") ;; esac
    lacking+=("$what")
  fi
}

missing_anything() { [ ${#lacking[@]} -gt 0 ]; }

# need_gem FEATURE PACKAGE: FEATURE must have been among ruby_facts' arguments.
need_gem() {
  case " $missing_gems " in *" $1 "*) need "gem $1" "$2" false ;; esac
}

apt_here() { have apt-get && have dpkg-query; }

# rust_package NAME: which package of Debian has it for Rust 1.85 or newer; nothing if none has. That is the one of this name from
# Debian 13 on. Debian 12 has a newer Rust beside its own, with which it compiles its browsers.
rust_package() {
  local package version
  for package in "$1" "$1-web"; do
    version=$(apt-cache policy "$package" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9].*\)/\1/p' || true)
    ! dpkg --compare-versions "${version:-0}" ge 1.85 || { echo "$package"; return; }
  done
}

# Debian's ruby-* packages are for Debian's Ruby alone; where there is none yet, that is the one to come.
debian_ruby() {
  apt_here || return 1
  have "$ruby" || return 0
  case $(readlink -f "$(command -v "$ruby")") in /usr/bin/ruby*) return 0 ;; *) return 1 ;; esac
}

# Fetches the lists of packages where there are none, and packages may be installed.
fetch_lists() {
  apt_here && [ -z "${FASTRACK_NO_INSTALL:-}" ] && ! apt-cache show ruby >/dev/null 2>&1 && become_root || return 1
  say "fetching the lists of packages"
  privileged apt-get -q update >&2
}

# Sets as_root to what makes the following command run as root; fails when nothing does.
become_root() {
  as_root=()
  [ "$(id -u)" = 0 ] && return
  have sudo || return 1
  sudo -n true 2>/dev/null || [ -t 0 ] || return 1
  as_root=(sudo)
}

# Installs `wanted`, or says with which command to do it, and fails.
install_packages() {
  if ! apt_here || [ -n "${FASTRACK_NO_INSTALL:-}" ] || ! become_root; then
    die "missing: $(list "${lacking[@]}"); install it with: $(install_command)"
  fi
  say "installing Debian packages: ${wanted[*]}"
  with_services_off apt_install "${wanted[@]}"
}

# The command that installs `wanted` here.
install_command() {
  if [ "$(uname)" = Darwin ]; then
    case " ${wanted[*]} " in *" ruby "*) echo "brew install ruby" ;; *) echo "xcode-select --install" ;; esac
    return
  fi
  if apt_here; then
    echo "apt-get install --no-install-recommends ${wanted[*]} (as root)"
    return
  fi
  echo "your package manager; Debian calls them ${wanted[*]}"
}

list() { local words; words=$(printf '%s, ' "$@"); echo "${words%, }"; }

privileged() { ${as_root[@]+"${as_root[@]}"} "$@"; }

apt_install() {
  # A source of another vendor that does not answer is no reason to stop: what matters is whether the packages are found.
  privileged apt-get -q update >&2 || say "apt-get update failed; going on with the lists that are there"
  privileged env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get -qy -o Dpkg::Use-Pty=0 install --no-install-recommends "$@" </dev/null >&2
}

# Runs a command that installs packages so that no daemon of theirs starts, now or when the machine boots.
with_services_off() {
  local policy=/usr/sbin/policy-rc.d before status=0
  before=$(service_units)
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | privileged tee "$policy" >/dev/null
    privileged chmod 755 "$policy"
    # An interrupted installation must not leave it: no service of the machine could be started any more.
    # shellcheck disable=SC2064
    trap "$(printf '%q ' ${as_root[@]+"${as_root[@]}"} rm -f "$policy")" EXIT
  fi
  "$@" || status=$?
  disable_new_units "$before"
  return $status
}

service_units() { find /lib/systemd/system -maxdepth 1 -name '*.service' 2>/dev/null | sort; }

disable_new_units() {
  local new
  have systemctl || return 0
  new=$(service_units | comm -13 <(printf '%s\n' "$1") - | sed 's|.*/||' | grep -Ev '@|^systemd-' || true)
  # shellcheck disable=SC2086
  [ -z "$new" ] || privileged systemctl --quiet disable $new 2>/dev/null || true
}
