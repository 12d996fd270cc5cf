#!/usr/bin/env bash
# The short form of `make e2e`, for `.ci/run`: one node of its own, the chart on it, a Stream, records through
# NATS and gRPC, and brokers restarted one after the other under load. Then all of it is gone again.
#
# Needs root that may make namespaces, Go, and apt for the Debian packages that are missing: where these are not,
# it says so and ends well. It replaces no package. The whole of it is `make cluster` and `make e2e`.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# By the command that is wanted: the package that brings it. Others may bring it, too, such as Docker's.
declare -rA packages=([containerd]=containerd [ctr]=containerd [runc]=runc [iptables]=iptables [ip]=iproute2
  [sysctl]=procps [nsenter]=util-linux [unshare]=util-linux [debootstrap]=debootstrap [buildah]=buildah)

skip() {
  echo "e2e/short.sh: not run: $*" >&2
  exit 0
}

((EUID == 0)) || skip 'nodes need root'
[[ $(uname -s) == Linux ]] || skip 'nodes need Linux'
[[ -n ${KUBEBUILDER_ASSETS:-} ]] || command -v go >/dev/null || skip 'there is no Go to build Kubernetes with'
lacking=()
for name in "${!packages[@]}"; do
  command -v "$name" >/dev/null || lacking+=("${packages[$name]}")
done
if ((${#lacking[@]})); then
  command -v apt-get >/dev/null || skip "there is no apt to install ${lacking[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends --no-remove "${lacking[@]}" >/dev/null ||
    skip "${lacking[*]} cannot be installed here"
fi
unshare --net --mount true 2>/dev/null || skip 'root may make no namespaces here'

# A cluster beside any other that runs here.
TIDELOG_CLUSTER_STATE=$(mktemp -d "${TMPDIR:-/var/tmp}/tidelog-short-XXXXXX")
export TIDELOG_CLUSTER_STATE
if [[ $(stat --file-system --format %T "$TIDELOG_CLUSTER_STATE") == overlayfs ]]; then
  rmdir "$TIDELOG_CLUSTER_STATE"
  skip "containers' file systems cannot lie on an overlay, which ${TMPDIR:-/var/tmp} is on"
fi
# All of it is thrown away at once: nobody has to see the release off.
export TIDELOG_E2E_KEEP=1
unset KUBECONFIG
clean_up() {
  .venv/bin/python -m e2e.cluster down && rm -rf --one-file-system "$TIDELOG_CLUSTER_STATE" ||
    echo "e2e/short.sh: the cluster in $TIDELOG_CLUSTER_STATE was not ended" >&2
}
trap clean_up EXIT
NODES=1 e2e/cluster.sh
.venv/bin/python -m pytest -p no:randomly --timeout 600 -m short e2e </dev/null
