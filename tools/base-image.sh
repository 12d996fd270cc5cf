#!/usr/bin/env bash
# Makes a base image for the Dockerfile from Debian packages alone, for where no image registry can be reached:
# Debian's minimal system, its Python with the venv module, and the certificates of public authorities.
#
#   tools/base-image.sh [NAME]   prints the image's whole name, NAME:SUITE-HASH
#
# HASH is of everything that decides what is in the image but the packages' versions, which are those that the
# mirror has on the day. An image of that name that is there already is not made again; remove it to have newer
# packages.
#
#   NAME            localhost/tidelog-base unless given
#   ENGINE          docker or buildah, in whose store the image goes; buildah unless set
#   DEBIAN_SUITE    bookworm unless set; one with Python 3.11 or newer
#   DEBIAN_MIRROR   where packages come from; debootstrap's default unless set
#
# Needs root and debootstrap, 400 MB below ${TMPDIR:-/tmp} for a while, and about a minute.
set -euo pipefail

name=${1:-localhost/tidelog-base}
engine=${ENGINE:-buildah}
suite=${DEBIAN_SUITE:-bookworm}
mirror=${DEBIAN_MIRROR:-}
readonly name engine suite mirror
readonly epoch=315532800 # of every file, as tools/images.sh has it: 1980, the oldest that a zip file can say

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "base-image: $*"
  exit 1
}

hash=$(cat "${BASH_SOURCE[0]}" - <<<"$suite $mirror $(uname -m)" | sha256sum)
readonly image=$name:$suite-${hash:0:12}

if "$engine" inspect --type image "$image" >/dev/null 2>&1; then
  echo "$image"
  exit 0
fi

((EUID == 0)) || fail "debootstrap needs root; call as root, or give an image of your own as BASE."
command -v debootstrap >/dev/null || fail "debootstrap is missing. On Debian or Ubuntu: apt install debootstrap"

work=$(mktemp -d "${TMPDIR:-/tmp}/tidelog-base.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
readonly root=$work/root

say "base-image: making $image"
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
  "$suite" "$root" ${mirror:+"$mirror"} >"$work/log" 2>&1 || {
  tail -n 20 "$work/log" >&2
  [[ ! -f $root/debootstrap/debootstrap.log ]] || tail -n 20 "$root/debootstrap/debootstrap.log" >&2
  fail "debootstrap failed; its last lines are above."
}

# What nothing in a container reads. Bytecode goes too: it is bound to the times of its sources, which are about
# to change; the Dockerfile compiles what its images use.
rm -rf "$root"/usr/share/{doc,man,locale,info,lintian,bash-completion} "$root"/usr/share/zoneinfo/right \
  "$root"/var/lib/apt/lists/* "$root"/var/cache/{apt,debconf,ldconfig}/* "$root"/etc/apt/sources.list
find "$root" -name __pycache__ -prune -exec rm -rf {} +
# What tells of this machine or of this day.
find "$root/var/log" -type f -delete
rm -f "$root"/var/lib/dpkg/*-old "$root"/etc/*-
: >"$root/etc/hostname"
: >"$root/etc/resolv.conf"
sed -i -E 's/^([^:]*:[^:]*):[0-9]+:/\1:19000:/' "$root/etc/shadow"

tar --sort=name --mtime=@$epoch --numeric-owner --exclude='./dev/*' -C "$root" -cf "$work/root.tar" .
rm -rf --one-file-system "$root"
printf '%s\n' 'FROM scratch' 'ADD root.tar /' 'CMD ["python3"]' >"$work/Dockerfile"
case $engine in
  docker) docker build --quiet --tag "$image" "$work" >&2 ;;
  buildah) buildah bud --quiet --timestamp $epoch --tag "$image" "$work" >&2 ;;
  *) fail "ENGINE is docker or buildah, not $engine." ;;
esac
echo "$image"
