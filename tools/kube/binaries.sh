#!/usr/bin/env bash
# The Kubernetes programs that tests run, built from Go modules: no release is downloaded.
#
#   tools/kube/binaries.sh build [cluster]   builds what is missing; prints the folder
#   tools/kube/binaries.sh where [cluster]   prints the folder; fails if something is missing
#
# Without `cluster`: what the tests of the operator and of the chart run, an API server with its controllers,
# and helm. With it: what a cluster with real nodes runs besides (e2e/cluster).
#
# The folder is $KUBEBUILDER_ASSETS where that is set, and nothing is built then: whoever sets it has put the
# programs there. Else it is a folder of ${XDG_CACHE_HOME:-~/.cache}/tidelog-kube that is named after
# everything the programs are made from, so that a finished one is never built again, and another version gets
# another folder.
#
# `build` needs Go and the modules that go.sum names, from Go's cache or its proxy: some six minutes on two
# cores the first time, nine with `cluster`, and 3.5 GB of the compiler's cache, which may be removed afterwards.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

# By the name of the program: the folder of its module, and the package that it is.
plugins=github.com/containernetworking/plugins/plugins
declare -A packages=(
  [etcd]=". go.etcd.io/etcd/server/v3"
  [kube-apiserver]=". k8s.io/kubernetes/cmd/kube-apiserver"
  [kube-controller-manager]=". k8s.io/kubernetes/cmd/kube-controller-manager"
  [kube-scheduler]=". k8s.io/kubernetes/cmd/kube-scheduler"
  [kubectl]=". k8s.io/kubernetes/cmd/kubectl"
  [helm]=". helm.sh/helm/v3/cmd/helm"
  [kubelet]=". k8s.io/kubernetes/cmd/kubelet"
  [kube-proxy]=". k8s.io/kubernetes/cmd/kube-proxy"
  [coredns]="coredns ."
  [pause]="pause ."
  [cni/bridge]="cni $plugins/main/bridge"
  [cni/host-local]="cni $plugins/ipam/host-local"
  [cni/loopback]="cni $plugins/main/loopback"
  [cni/portmap]="cni $plugins/meta/portmap"
)
programs=(etcd kube-apiserver kubectl kube-controller-manager kube-scheduler helm)
of_cluster=(kubelet kube-proxy coredns pause cni/bridge cni/host-local cni/loopback cni/portmap)

die() {
  echo "tools/kube/binaries.sh: $*" >&2
  exit 1
}

usage() {
  echo "usage: tools/kube/binaries.sh build|where [cluster]" >&2
  exit 2
}

missing() {
  local program
  for program in "${programs[@]}"; do
    if [ ! -x "$1/$program" ]; then echo "$program"; fi
  done
}

version_of() {
  awk -v module="$1" '$1 == module && $2 ~ /^v/ { print $2; exit }' "$here/go.mod"
}

# Kubernetes' programs that are not told their version call themselves v0.0.0-master, and refuse each other;
# helm, where it can ask no cluster, as in `helm template`, takes it for Kubernetes 1.20.
version_flags() {
  local version minor package
  version=$(version_of k8s.io/kubernetes)
  minor=$(cut -d . -f 2 <<<"$version")
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    printf '%s ' -X "$package.gitVersion=$version" -X "$package.gitMajor=1" -X "$package.gitMinor=$minor" \
      -X "$package.gitTreeState=clean"
  done
  printf '%s ' -X "helm.sh/helm/v3/internal/version.version=$(version_of helm.sh/helm/v3)"
  for package in pkg/lint/rules pkg/chartutil; do
    printf '%s ' -X "helm.sh/helm/v3/$package.k8sVersionMajor=1" \
      -X "helm.sh/helm/v3/$package.k8sVersionMinor=$minor"
  done
}

assets_of_cache() {
  local key
  key=$({
    cat "$here"/{,*/}go.{mod,sum} "$here"/*/*.go "${BASH_SOURCE[0]}"
    go env GOVERSION GOOS GOARCH
  } 2>/dev/null | sha256sum | cut -c 1-12)
  echo "${XDG_CACHE_HOME:-$HOME/.cache}/tidelog-kube/$key"
}

build() {
  local assets=$1 program module package began part
  mkdir -p "$assets/cni"
  # Who builds at the same time waits, and finds it done.
  exec 9>"$assets/.lock"
  flock 9
  for program in $(missing "$assets"); do
    began=$SECONDS
    part=$assets/.${program////-}.part
    read -r module package <<<"${packages[$program]}"
    echo "building $program" >&2
    (cd "$here/$module" && go build -trimpath -buildvcs=false -ldflags "-s -w $(version_flags)" -o "$part" \
      "$package") || die "$program could not be built; see above"
    mv -f "$part" "$assets/$program"
    echo "built $program in $((SECONDS - began)) s" >&2
  done
}

case ${2:-} in
  '') ;;
  cluster) programs+=("${of_cluster[@]}") ;;
  *) usage ;;
esac
if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
  assets=$KUBEBUILDER_ASSETS
elif command -v go >/dev/null; then
  assets=$(assets_of_cache)
else
  die "there is no Go here to build them with; set KUBEBUILDER_ASSETS to a folder that has ${programs[*]}"
fi
case ${1:-} in
  build) [ -n "${KUBEBUILDER_ASSETS:-}" ] || build "$assets" ;;
  where) ;;
  *) usage ;;
esac
lacking=$(missing "$assets" | xargs)
[ -z "$lacking" ] || die "$assets lacks $lacking; call 'tools/kube/binaries.sh build${2:+ $2}'"
echo "$assets"
