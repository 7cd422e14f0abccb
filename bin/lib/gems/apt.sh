# Sourced by setup.sh and root.sh: apt with lists of its own, which leaves this machine's as they are.
# shellcheck shell=bash

# use_apt FOLDER ARCHITECTURE SUITE...: apt_here will be about these releases of Debian.
use_apt() {
  local mirror suite
  apt=$1 architecture=$2
  shift 2
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
  : >"$apt/status"
  mirror=$(debian_mirror)
  for suite in "$@"; do
    printf '%s [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' deb "$mirror" "$suite" deb-src "$mirror" "$suite"
  done >"$apt/sources.list"
  private_apt apt-get update >&2
}

private_apt() {
  local program=$1
  shift
  "$program" -q -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::Etc::preferencesparts=/dev/null -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status" \
    -o Dir::Cache="$apt/cache" -o APT::Architecture="$architecture" -o APT::Architectures::=amd64 \
    -o APT::Architectures::=arm64 -o Acquire::Languages=none -o APT::Sandbox::User=root \
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Install-Recommends=false "$@"
}

# The mirror of Debian that this machine's own apt uses; security updates come from another place.
debian_mirror() {
  # shellcheck disable=SC2016 # apt-get itself fills the form in
  echo "${FASTRACK_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian" && !/security/ && !found++ { print $2 }')}"
}

# Ubuntu has apt, too, and neither Debian's packages nor the key that they are signed with.
debian_here() { have apt-get && [ -n "$(debian_mirror)" ]; }

# unpack_packages FOLDER PACKAGE...: their files, without their scripts.
unpack_packages() {
  local folder=$1 archives=$apt/cache/archives archive
  shift
  rm -f "$archives"/*.deb
  mkdir -p "$folder"
  (cd "$archives" && private_apt apt-get download "$@" >&2)
  for archive in "$archives"/*.deb; do dpkg-deb -x "$archive" "$folder"; done
}
