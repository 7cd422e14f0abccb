#!/bin/bash
# Runs a command in a bare root: enter.sh ROOT MOUNT_POINT REPO GEM COMMAND...
#
# It must have a mount namespace of its own (lane.sh gives it one). What the command changes is in memory and gone with it. The
# gem, the apps and the test are in /gems, and nothing else of this machine is there.
set -euo pipefail

lower=$1 layers=$2 repo=$3 gem=$4
shift 4

mount -t tmpfs tmpfs "$layers"
root=$layers/root
mkdir "$layers/upper" "$layers/work" "$root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$layers/upper,workdir=$layers/work" "$root"
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/gems"
chmod 1777 "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"

cp -R "$gem" "$repo"/bin/lib/gems/{smoke.rb,deploy.rb,rails.ru} "$repo/examples/heroku" "$root/gems/"
cp "$repo/examples/hello/config.ru" "$root/gems/hello.ru"
cp "$repo/examples/sinatra/config.ru" "$root/gems/sinatra.ru"
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 chroot "$root" "$@"
