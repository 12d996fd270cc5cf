#!/usr/bin/env bash
# The short form of `make e2e`, for `.ci/run`: one node of its own, the chart on it, a Stream, records through
# NATS and gRPC, and brokers restarted one after the other under load. Then all of it is gone again.
#
# Needs root, Go and apt, for what Debian packages are missing: where these are not, it says so and ends well.
# The whole of it is `make cluster` and `make e2e`.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

readonly packages=(containerd runc iptables iproute2 procps util-linux debootstrap buildah)

skip() {
  echo "e2e/short.sh: not run: $*" >&2
  exit 0
}

((EUID == 0)) || skip 'nodes need root'
[[ $(uname -s) == Linux ]] || skip 'nodes need Linux'
[[ -n ${KUBEBUILDER_ASSETS:-} ]] || command -v go >/dev/null || skip 'there is no Go to build Kubernetes with'
for package in "${packages[@]}"; do
  if ! dpkg --status "$package" >/dev/null 2>&1; then
    command -v apt-get >/dev/null || skip "$package is not installed, and there is no apt to install it"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null
    break
  fi
done

# A cluster beside any other that runs here.
TIDELOG_CLUSTER_STATE=$(mktemp -d "${TMPDIR:-/var/tmp}/tidelog-short-XXXXXX")
export TIDELOG_CLUSTER_STATE
# All of it is thrown away at once: nobody has to see the release off.
export TIDELOG_E2E_KEEP=1
unset KUBECONFIG
trap '.venv/bin/python -m e2e.cluster down || true; rm -rf --one-file-system "$TIDELOG_CLUSTER_STATE"' EXIT
NODES=1 e2e/cluster.sh
.venv/bin/python -m pytest -p no:randomly --timeout 600 -m short e2e </dev/null
