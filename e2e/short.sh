#!/usr/bin/env bash
# The short form of `make e2e`, for `.ci/run`: it starts one node, installs the chart, creates a Stream, writes
# records through NATS and gRPC, and restarts the brokers one after the other under load. Then it removes everything.
#
# It needs root with the right to create namespaces, Go, and apt for missing Debian packages. If one of these is not
# available, it says so and exits with 0. It replaces no package. `make cluster` and `make e2e` run all tests.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# The Debian package of each required command. Other packages, such as Docker's, may provide it too.
declare -rA packages=([containerd]=containerd [ctr]=containerd [runc]=runc [iptables]=iptables [ip]=iproute2
  [sysctl]=procps [nsenter]=util-linux [unshare]=util-linux [debootstrap]=debootstrap [buildah]=buildah)

skip() {
  echo "e2e/short.sh: not run: $*" >&2
  exit 0
}

((EUID == 0)) || skip 'nodes need root'
[[ $(uname -s) == Linux ]] || skip 'nodes need Linux'
[[ -n ${KUBEBUILDER_ASSETS:-} ]] || command -v go >/dev/null || skip 'building Kubernetes needs Go'
lacking=()
for name in "${!packages[@]}"; do
  command -v "$name" >/dev/null || lacking+=("${packages[$name]}")
done
if ((${#lacking[@]})); then
  command -v apt-get >/dev/null || skip "${lacking[*]} is missing, and there is no apt to install it"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends --no-remove "${lacking[@]}" >/dev/null ||
    skip "apt cannot install ${lacking[*]}"
fi
unshare --net --mount true 2>/dev/null || skip 'root has no right to create namespaces'

# A cluster of its own, besides others on this machine.
TIDELOG_CLUSTER_STATE=$(mktemp -d "${TMPDIR:-/var/tmp}/tidelog-short-XXXXXX")
export TIDELOG_CLUSTER_STATE
if [[ $(stat --file-system --format %T "$TIDELOG_CLUSTER_STATE") == overlayfs ]]; then
  rmdir "$TIDELOG_CLUSTER_STATE"
  skip "${TMPDIR:-/var/tmp} is on an overlay, where file systems of containers do not work; set TMPDIR"
fi
# The whole cluster is removed at the end, so the release does not have to be uninstalled.
export TIDELOG_E2E_KEEP=1
unset KUBECONFIG
clean_up() {
  .venv/bin/python -m e2e.cluster down && rm -rf --one-file-system "$TIDELOG_CLUSTER_STATE" ||
    echo "e2e/short.sh: could not remove the cluster in $TIDELOG_CLUSTER_STATE" >&2
}
trap clean_up EXIT
NODES=1 e2e/cluster.sh
.venv/bin/python -m pytest -p no:randomly --timeout 600 -m short e2e </dev/null
