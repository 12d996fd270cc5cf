#!/usr/bin/env bash
# Builds the container images: `make images`.
#
# It uses docker if the docker daemon answers, otherwise buildah. Unchanged layers are not built again.
#
#   TARGETS   the images, in this order; "broker operator" unless set; `spark` is
#             the image of Ingestions. The tests in e2e/ also use `nats`, a NATS
#             server, and `client`, Python with the clients of Tidelog and NATS, which is made from `broker`
#   IMAGES    the prefix of the names; tidelog unless set, which gives tidelog/broker:0.1.0
#   TAG       the tag, and the version label; the version of pyproject.toml unless set.
#             Another tag for the same files takes some seconds and gives an image of its own
#   BASE      the base image, with Python 3.11 or newer and its venv module; the Dockerfile's unless set.
#             `debian`: an image that tools/base-image.sh makes, for machines that reach no registry
#   DEBIAN_MIRROR  the mirror for Debian's Java in the image spark; the Dockerfile's unless set
#   OUT       a folder: each image is also written there, as broker.tar and so on, for
#             `ctr --namespace k8s.io images import` and `docker load`
#   ENGINE    docker or buildah, instead of the engine that is found
#   PIP_CONF  a pip.conf for the build; pip's settings on this machine (index, proxy and so on) unless set
#   CA_BUNDLE the certificate authorities that the build trusts; those of pip on this machine unless set
#
# It prints the names of the images.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

targets=${TARGETS:-broker operator}
prefix=${IMAGES:-tidelog}
tag=${TAG:-$(sed -nE 's/^version = "(.*)"$/\1/p' pyproject.toml)}
base=${BASE:-}
out=${OUT:-}
readonly targets prefix tag out
# The time of every file and image. It does not depend on the commit, so unchanged layers stay the same.
# 1980 is the oldest time in a zip file.
export SOURCE_DATE_EPOCH=315532800

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "images: $*"
  exit 1
}

find_engine() {
  if [[ -n ${ENGINE:-} ]]; then
    [[ $ENGINE == docker || $ENGINE == buildah ]] || fail "ENGINE is docker or buildah, not $ENGINE."
    command -v "$ENGINE" >/dev/null || fail "ENGINE is $ENGINE, which is not installed."
    echo "$ENGINE"
  elif command -v docker >/dev/null && docker info >/dev/null 2>&1; then
    echo docker
  elif command -v buildah >/dev/null; then
    echo buildah
  elif command -v docker >/dev/null; then
    fail "docker is installed, but its daemon does not answer. Start it and check that you may use it" \
      "(docker info), or install buildah: apt install buildah"
  else
    fail "building images needs docker or buildah. On Debian or Ubuntu: apt install buildah"
  fi
}

# Prints how pip reaches its index on this machine, as a pip.conf. The environment wins over the files of pip.
pip_conf() {
  python3 -m pip config list 2>/dev/null | awk -F= '
    match($0, /^(global|:env:)\.(index-url|extra-index-url|trusted-host|proxy|timeout|default-timeout)=/) {
      from = $1; sub(/\..*/, "", from)
      name = $1; sub(/^[^.]*\./, "", name); sub(/^default-/, "", name)
      value = substr($0, RLENGTH + 2, length($0) - RLENGTH - 2)
      gsub(/\\n/, "\n  ", value)
      if (from == ":env:" || !(name in values)) values[name] = value
    }
    END { print "[global]"; for (name in values) print name " = " values[name] }'
}

# Prints the first existing file among the bundles of authorities that programs on this machine trust.
ca_bundle() {
  local file
  for file in "${PIP_CERT:-}" "${REQUESTS_CA_BUNDLE:-}" "${SSL_CERT_FILE:-}" \
    "$(python3 -m pip config get global.cert 2>/dev/null)"; do
    if [[ -f $file ]]; then
      echo "$file"
      return
    fi
  done
}

name_of() { echo "$prefix/$1:$tag"; }

build() { # build TARGET DOCKERFILE [--build-arg NAME=VALUE...]
  local target=$1 file=$2
  shift 2
  # The version is written into the file: buildah 1.28 does not see that an argument changed, and reuses its image.
  sed "s/[$]{VERSION}/$tag/" "$file" >"$work/Dockerfile"
  local -a options=(--file "$work/Dockerfile" --target "$target" --tag "$(name_of "$target")"
    --secret "id=pip.conf,src=$work/pip.conf" "$@")
  [[ -z $base ]] || options+=(--build-arg "BASE=$base")
  [[ -z $authorities ]] || options+=(--secret "id=ca.pem,src=$authorities")
  if [[ $engine == docker ]]; then
    # A build gets these settings of the machine only by name, and does not keep them. buildah passes them on itself.
    for setting in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
      [[ -z ${!setting:-} ]] || options+=(--build-arg "$setting")
    done
    DOCKER_BUILDKIT=1 docker build --build-arg SOURCE_DATE_EPOCH "${options[@]}" . >&2
  else
    buildah bud --layers --timestamp "$SOURCE_DATE_EPOCH" --network host "${options[@]}" . >"$work/log" 2>&1 || {
      tail -n 40 "$work/log" >&2
      return 1
    }
  fi || fail "could not build $(name_of "$target"). The reason is above."
}

# An archive that already has this name and image is not written again.
write() { # write TARGET
  local image file=$out/$1.tar
  image=$(name_of "$1")
  local id
  id=$("$engine" inspect --type image --format "$id_format" "$image")
  if [[ -f $file ]] && tar -xOf "$file" manifest.json 2>/dev/null | grep -F "${id#sha256:}" | grep -qF "$image\""; then
    return
  fi
  rm -f "$file.new"
  if [[ $engine == docker ]]; then
    docker save --output "$file.new" "$image"
  else
    buildah push --quiet "$image" "docker-archive:$file.new:$image"
  fi
  mv "$file.new" "$file"
}

engine=$(find_engine)
case $engine in
  docker) id_format='{{.Id}}' ;;
  buildah) id_format='{{.FromImageID}}' ;;
esac
work=$(mktemp -d "${TMPDIR:-/tmp}/tidelog-images.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
authorities=${CA_BUNDLE:-$(ca_bundle)}
if [[ -n ${PIP_CONF:-} ]]; then
  cp "$PIP_CONF" "$work/pip.conf"
else
  pip_conf >"$work/pip.conf"
fi
if [[ $base == debian ]]; then
  base=$(ENGINE=$engine tools/base-image.sh)
fi
readonly engine id_format work authorities base

[[ -z $out ]] || mkdir -p "$out"
for target in $targets; do
  case $target in
    broker | operator) build "$target" Dockerfile ;;
    spark) build spark Dockerfile ${DEBIAN_MIRROR:+--build-arg "DEBIAN_MIRROR=$DEBIAN_MIRROR"} ;;
    nats) build nats e2e/Dockerfile ;;
    client) build client e2e/Dockerfile --build-arg "BROKER=$(name_of broker)" ;;
    *) fail "there is no image $target; the images are broker, operator, spark, nats and client." ;;
  esac
  [[ -z $out ]] || write "$target"
  name_of "$target"
done
