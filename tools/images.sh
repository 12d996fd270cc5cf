#!/usr/bin/env bash
# Builds the container images: `make images`.
#
# With docker where its daemon answers, else with buildah. What has not changed is not built again.
#
#   TARGETS   which, in this order; "broker operator" unless set. For the tests in e2e/ also `nats`, a NATS
#             server, and `client`, Python with Tidelog's client and one for NATS, made from `broker`
#   IMAGES    what stands before their names; tidelog unless set, which gives tidelog/broker:0.1.0
#   TAG       what stands behind, also in their version label; the version of pyproject.toml unless set.
#             Another tag for the same files costs some seconds, and gives an image of its own
#   BASE      the image they are made from, with Python 3.11 or newer and its venv module; the Dockerfile's
#             unless set. `debian`: one that tools/base-image.sh makes, where no registry can be reached
#   OUT       a folder: each image is also written there, as broker.tar and so on, for
#             `ctr --namespace k8s.io images import` and `docker load`
#   ENGINE    docker or buildah, if not the one that is found
#   PIP_CONF  a pip.conf for the build; without it index, proxy and the like are as pip has them here
#   CA_BUNDLE the authorities that the build trusts; without it those that pip is told of here, if any
#
# Prints the images' names.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

targets=${TARGETS:-broker operator}
prefix=${IMAGES:-tidelog}
tag=${TAG:-$(sed -nE 's/^version = "(.*)"$/\1/p' pyproject.toml)}
base=${BASE:-}
out=${OUT:-}
readonly targets prefix tag out
# Of every file and image. The same whatever the commit, or layers that nothing changed would not stay the same.
# 1980 is the oldest that a zip file can say.
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
    fail "docker is installed, but its daemon does not answer. Start it, see that you may use it" \
      "(docker info), or install buildah: apt install buildah"
  else
    fail "building images needs docker or buildah. On Debian or Ubuntu: apt install buildah"
  fi
}

# How pip reaches its index on this machine, as a pip.conf: from its environment and its files, the former first.
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

# The first that is a file, of what programs of this machine are told to trust.
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
  # Written into the file: of an argument buildah 1.28 does not see that it differs, and takes the image it has.
  sed "s/[$]{VERSION}/$tag/" "$file" >"$work/Dockerfile"
  local -a options=(--file "$work/Dockerfile" --target "$target" --tag "$(name_of "$target")"
    --secret "id=pip.conf,src=$work/pip.conf" "$@")
  [[ -z $base ]] || options+=(--build-arg "BASE=$base")
  [[ -z $authorities ]] || options+=(--secret "id=ca.pem,src=$authorities")
  if [[ $engine == docker ]]; then
    # A build has these settings of the machine only by name, and keeps none; buildah hands them on by itself.
    for setting in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
      [[ -z ${!setting:-} ]] || options+=(--build-arg "$setting")
    done
    DOCKER_BUILDKIT=1 docker build --build-arg SOURCE_DATE_EPOCH "${options[@]}" . >&2
  else
    buildah bud --layers --timestamp "$SOURCE_DATE_EPOCH" --network host "${options[@]}" . >"$work/log" 2>&1 || {
      tail -n 40 "$work/log" >&2
      return 1
    }
  fi || fail "could not build $(name_of "$target"); why is above."
}

# An archive whose name and image are these already is left as it is.
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
    nats) build nats e2e/Dockerfile ;;
    client) build client e2e/Dockerfile --build-arg "BROKER=$(name_of broker)" ;;
    *) fail "$target is not an image; there are broker, operator, nats and client." ;;
  esac
  [[ -z $out ]] || write "$target"
  name_of "$target"
done
