#!/usr/bin/env bash
# The Kubernetes programs that the tests of the operator run, built from Go modules: no release is downloaded.
#
#   tools/kube/binaries.sh build   builds what is missing; prints the folder
#   tools/kube/binaries.sh where   prints the folder; fails if something is missing
#
# The folder is $KUBEBUILDER_ASSETS where that is set, and nothing is built then: whoever sets it has put
# etcd, kube-apiserver, kubectl, kube-controller-manager and kube-scheduler there. Else it is a folder of
# ${XDG_CACHE_HOME:-~/.cache}/tidelog-kube that is named after everything the programs are made from, so that
# a finished one is never built again, and another version gets another folder.
#
# `build` needs Go and the modules that go.sum names, from Go's cache or its proxy: some six minutes on two
# cores the first time, and 3.5 GB of the compiler's cache, which may be removed afterwards.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

# By the name of the program: the package that it is.
declare -A packages=(
  [etcd]=go.etcd.io/etcd/server/v3
  [kube-apiserver]=k8s.io/kubernetes/cmd/kube-apiserver
  [kube-controller-manager]=k8s.io/kubernetes/cmd/kube-controller-manager
  [kube-scheduler]=k8s.io/kubernetes/cmd/kube-scheduler
  [kubectl]=k8s.io/kubernetes/cmd/kubectl
)
programs=(etcd kube-apiserver kubectl kube-controller-manager kube-scheduler)

die() {
  echo "tools/kube/binaries.sh: $*" >&2
  exit 1
}

missing() {
  local program
  for program in "${programs[@]}"; do
    if [ ! -x "$1/$program" ]; then echo "$program"; fi
  done
}

# Kubernetes' programs that are not told their version call themselves v0.0.0-master, and refuse each other.
version_flags() {
  local version minor package
  version=$(awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v/ { print $2; exit }' "$here/go.mod")
  minor=$(cut -d . -f 2 <<<"$version")
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    printf '%s ' -X "$package.gitVersion=$version" -X "$package.gitMajor=1" -X "$package.gitMinor=$minor" \
      -X "$package.gitTreeState=clean"
  done
}

assets_of_cache() {
  local key
  key=$({
    cat "$here/go.mod" "$here/go.sum" "${BASH_SOURCE[0]}"
    go env GOVERSION GOOS GOARCH
  } | sha256sum | cut -c 1-12)
  echo "${XDG_CACHE_HOME:-$HOME/.cache}/tidelog-kube/$key"
}

build() {
  local assets=$1 program began part
  mkdir -p "$assets"
  # Who builds at the same time waits, and finds it done.
  exec 9>"$assets/.lock"
  flock 9
  for program in $(missing "$assets"); do
    began=$SECONDS
    part=$assets/.$program.part
    echo "building $program" >&2
    (cd "$here" && go build -trimpath -buildvcs=false -ldflags "-s -w $(version_flags)" -o "$part" \
      "${packages[$program]}") || die "$program could not be built; see above"
    mv -f "$part" "$assets/$program"
    echo "built $program in $((SECONDS - began)) s" >&2
  done
}

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
  *)
    echo "usage: tools/kube/binaries.sh build|where" >&2
    exit 2
    ;;
esac
lacking=$(missing "$assets" | xargs)
[ -z "$lacking" ] || die "$assets lacks $lacking; call 'tools/kube/binaries.sh build'"
echo "$assets"
