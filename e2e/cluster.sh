#!/usr/bin/env bash
# A Kubernetes cluster on this machine with Tidelog's images on each of its nodes: `make cluster`.
#
#   NODES   how many nodes; 3 unless set
#   BASE    what the images are made from (tools/images.sh); `debian` unless set: no registry is needed
#
# With kind, where its command, a docker that answers and its node image are; `kubectl` and `helm` have to be
# there then, too, and KUBECONFIG is as `kind get kubeconfig` says it. Else with three real kubelets in network
# namespaces (`python -m e2e.cluster --help`): that takes root, Go, and some Debian packages, and gives nodes
# that the tests may cut off and switch off.
#
# One that runs already gets the images of now. `python -m e2e.cluster down`, or `kind delete cluster --name
# tidelog`, ends it.
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

# What brokers are rolled to is the same under another tag.
build_images() {
  TARGETS='broker operator nats client' tools/images.sh >&2
  mkdir -p "$images/next"
  TARGETS=broker TAG=$tag-next OUT=$images/next tools/images.sh >&2
  build_before
}

# What an upgrade begins with (e2e/earlier.py). One node is for a short look, without upgrades.
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
  say 'no kind with its node image here: real kubelets in network namespaces'
  tools/kube/binaries.sh build cluster >/dev/null
  build_images
  if ! .venv/bin/python -m e2e.cluster kubectl version >/dev/null 2>&1; then
    .venv/bin/python -m e2e.cluster up "$nodes"
  fi
  for file in "$images"/*.tar "$images"/*/*.tar; do .venv/bin/python -m e2e.cluster load-image "$file"; done
  say 'next: .venv/bin/python -m e2e.cluster kubectl get nodes, or: make e2e'
}

if has_kind; then with_kind; else with_kubelets; fi
