#!/usr/bin/env bash
# Makes a base image for the Dockerfile from Debian packages only, for machines that reach no image registry.
# It has Debian's minimal system, its Python with the venv module, and the certificates of public authorities.
#
#   tools/base-image.sh [NAME]   prints the full name of the image, NAME:SUITE-HASH
#
# HASH covers everything that decides the content of the image, except the versions of the packages: these are
# the versions that the mirror has on that day. An existing image of that name is not made again. Remove it to
# get newer packages.
#
#   NAME            localhost/tidelog-base unless given
#   ENGINE          docker or buildah: the image goes into its store; buildah unless set
#   DEBIAN_SUITE    bookworm unless set; one with Python 3.11 or newer
#   DEBIAN_MIRROR   the mirror for packages; debootstrap's default unless set
#
# It needs root, debootstrap, 400 MB in ${TMPDIR:-/tmp} while it runs, and about a minute.
set -euo pipefail

name=${1:-localhost/tidelog-base}
engine=${ENGINE:-buildah}
suite=${DEBIAN_SUITE:-bookworm}
mirror=${DEBIAN_MIRROR:-}
readonly name engine suite mirror
readonly epoch=315532800 # the time of every file, as in tools/images.sh: 1980, the oldest time in a zip file

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

((EUID == 0)) || fail "debootstrap needs root. Call this script as root, or give an image of your own as BASE."
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

# Remove files that no container reads. Bytecode is removed too: it depends on the times of its sources, which
# change below. The Dockerfile compiles the modules that its images use.
rm -rf "$root"/usr/share/{doc,man,locale,info,lintian,bash-completion} "$root"/usr/share/zoneinfo/right \
  "$root"/var/lib/apt/lists/* "$root"/var/cache/{apt,debconf,ldconfig}/* "$root"/etc/apt/sources.list
find "$root" -name __pycache__ -prune -exec rm -rf {} +
# Remove files that depend on this machine or this day.
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
