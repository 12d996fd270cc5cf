#!/usr/bin/env bash
# The S3-compatible store that tests run, MinIO, built from its Go module: no release is downloaded.
#
#   tools/s3/binaries.sh build   builds it if it is missing; prints the folder
#   tools/s3/binaries.sh where   prints the folder; fails if it is missing
#
# The folder is in ${XDG_CACHE_HOME:-~/.cache}/tidelog-s3 and named after what the program is made from.
# `build` needs Go and the modules that go.sum names: some two minutes on two cores the first time.
# MinIO is under the AGPL: it is a program that tests run, and no part of Tidelog.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

made_from=$(cat "$here/go.mod" "$here/go.sum" | sha256sum | cut -c 1-16)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/tidelog-s3/$made_from

case ${1:-} in
  where)
    [ -x "$folder/minio" ] || {
      echo "tools/s3/binaries.sh: minio is not built; run: tools/s3/binaries.sh build" >&2
      exit 1
    }
    ;;
  build)
    if [ ! -x "$folder/minio" ]; then
      mkdir -p "$folder"
      (cd "$here" && go build -trimpath -ldflags "-s -w" -o "$folder/minio.new" github.com/minio/minio) >&2
      mv "$folder/minio.new" "$folder/minio"
    fi
    ;;
  *)
    echo "usage: tools/s3/binaries.sh build|where" >&2
    exit 2
    ;;
esac
echo "$folder"
