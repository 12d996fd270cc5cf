#!/usr/bin/env bash
# A Kubernetes cluster on this machine with Tidelog's images on each of its nodes: `make cluster`.
#
#   NODES   number of nodes; default 3
#   BASE    base image (tools/images.sh); default `debian`, which needs no registry
#
# Uses kind if its command, its node image and a running docker are available; it then also needs `kubectl` and
# `helm`, and `kind get kubeconfig` prints the KUBECONFIG. Otherwise it uses three real kubelets in network
# namespaces (`python -m e2e.cluster --help`): this needs root, Go, and some Debian packages, and gives nodes
# that tests can isolate and switch off.
#
# A cluster that already runs gets the current images. `python -m e2e.cluster down`, or `kind delete cluster
# --name tidelog`, removes it.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

nodes=${NODES:-3}
images=.build/images
export IMAGES=tidelog.test BASE=${BASE:-debian} OUT=$images
tag=$(sed -nE 's/^version = "(.*)"$/\1/p' pyproject.toml)
readonly nodes images tag

say() { printf '%s\n' "$*" >&2; }

has_kind() {
  command -v kind >/dev/null && docker info >/dev/null 2>&1 &&
    [[ -n $(docker images --quiet --filter reference='kindest/node' 2>/dev/null) ]]
}

# Rollouts use the same image under another tag.
build_images() {
  # Ingestions are no part of the short tests on one node.
  TARGETS="broker operator nats client$( ((nodes == 1)) || echo ' spark')" tools/images.sh >&2
  ((nodes == 1)) || build_store
  mkdir -p "$images/next"
  TARGETS=broker TAG=$tag-next OUT=$images/next tools/images.sh >&2
  build_before
}

# The object store to which Ingestions write: MinIO, an image of one program.
build_store() {
  local minio
  minio=$(tools/s3/binaries.sh build)/minio
  if [[ ! $images/store.tar -nt $minio ]]; then
    .venv/bin/python -m e2e.cluster write-image "$minio" "$IMAGES/store:$tag" "$images/store.tar"
  fi
}

# Upgrades start from this version (e2e/earlier.py). A cluster of one node is for short tests, without upgrades.
build_before() {
  local before=.build/before status=0
  rm -rf --one-file-system "$before"
  if ((nodes > 1)); then .venv/bin/python -m e2e.earlier --folder "$before" || status=$?; else status=3; fi
  case $status in
    0)
      mkdir -p "$images/before"
      TARGETS='broker operator' TAG=$tag-before OUT=$PWD/$images/before "$before/tools/images.sh" >&2
      ;;
    3) rm -rf --one-file-system "$images/before" ;;
    *) exit "$status" ;;
  esac
}

with_kind() {
  local config
  if ! kind get clusters 2>/dev/null | grep -qx tidelog; then
    config=$(
      echo '{"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [{"role": "control-plane"}'
      for ((node = 0; node < nodes; node++)); do echo ', {"role": "worker"}'; done
      echo ']}'
    )
    kind create cluster --name tidelog --config - <<<"$config" >&2
  fi
  build_images
  for file in "$images"/*.tar "$images"/*/*.tar; do kind load image-archive --name tidelog "$file" >&2; done
  say "KUBECONFIG=\$(mktemp) && kind get kubeconfig --name tidelog >\$KUBECONFIG, then: make e2e"
}

with_kubelets() {
  say 'kind or its node image is not available: using real kubelets in network namespaces'
  tools/kube/binaries.sh build cluster >/dev/null
  build_images
  if ! .venv/bin/python -m e2e.cluster kubectl version >/dev/null 2>&1; then
    .venv/bin/python -m e2e.cluster up "$nodes"
  fi
  for file in "$images"/*.tar "$images"/*/*.tar; do .venv/bin/python -m e2e.cluster load-image "$file"; done
  say 'next: .venv/bin/python -m e2e.cluster kubectl get nodes, or: make e2e'
}

if has_kind; then with_kind; else with_kubelets; fi
