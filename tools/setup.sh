#!/usr/bin/env bash
# Makes .venv hold what this repository needs, or returns at once if it already does.
#
# `make` calls this before anything that runs Python. A stamp below .venv, written last, says what
# the environment was made from; without it the environment is half-made and is made again.
# PYTHON names the interpreter to use (default: the first of python3, python3.13, python3.12,
# python3.11 that is new enough).
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

readonly venv=.venv
readonly stamp=$venv/.tidelog-stamp # line 1: interpreter and place; line 2: what was installed
readonly mark=$venv/.tidelog-made   # this script made the directory, so it may remove it
readonly log=.build/setup.log
readonly free_mib_min=3500 # at the peak: the environment, the packages as fetched, and Spark being unpacked

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "setup: $*"
  exit 1
}

is_new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Prints the interpreter itself, not a venv's or a version switcher's link to it: .venv must outlive those.
find_python() {
  local -a names=(python3 python3.13 python3.12 python3.11)
  [[ -z ${PYTHON:-} ]] || names=("$PYTHON")
  local name version
  for name in "${names[@]}"; do
    if is_new_enough "$name"; then
      "$name" -c 'import sys; print(getattr(sys, "_base_executable", None) or sys.executable)'
      return
    fi
  done
  name=${names[0]}
  version=$("$name" --version 2>/dev/null) || fail "Python 3.11 or newer is needed, and there is no $name here." \
    "On Debian or Ubuntu: apt install python3 python3-venv. Elsewhere name one: make PYTHON=/path/to/python3"
  fail "Python 3.11 or newer is needed; $name is $version." \
    "If a newer one is installed, name it: make PYTHON=/path/to/python3"
}

hash_of() { sha256sum | cut -d ' ' -f 1; }

stamp_says() { # stamp_says LINE VALUE
  [[ -f $stamp && $(sed -n "$1p" "$stamp") == "$2" ]]
}

check_can_make_venv() {
  "$python" -c 'import venv, ensurepip' >/dev/null 2>&1 ||
    fail "$python has no venv module. On Debian or Ubuntu: apt install $(basename "$python")-venv"
  local free_mib
  free_mib=$(df -Pm . | awk 'NR == 2 { print $4 }')
  ((free_mib >= free_mib_min)) ||
    fail "the disk has too little room: $free_mib MiB are free in $PWD, $free_mib_min MiB are needed."
}

make_venv() {
  check_can_make_venv
  if [[ -e $venv && ! -e $mark ]]; then
    fail "$venv is not one that this script made, and it does not fit $python. Move it away and call again."
  fi
  rm -rf "$venv"
  mkdir "$venv"
  : >"$mark"
  "$python" -m venv "$venv" >>"$log" 2>&1 || explain "could not make a virtual environment in $venv"
}

explain() { # says why the last step failed, from what it logged, and ends
  local why="see the lines above and $log"
  if grep -qF 'Operation cancelled by user' "$log"; then
    why="stopped"
  elif grep -qE 'No space left on device|Disk quota exceeded' "$log"; then
    why="the disk is full ($(df -Ph . | awk 'NR == 2 { print $4 }') free in $PWD)"
  elif grep -qE 'NewConnectionError|NameResolutionError|Temporary failure in name resolution|Network is unreachable|ConnectTimeout|ReadTimeout|ProxyError|SSLError|CERTIFICATE_VERIFY_FAILED' "$log"; then
    why="the package index cannot be reached; check the network, and pip's proxy and certificate settings (pip config list)"
  elif grep -qE 'No matching distribution found|Could not find a version' "$log"; then
    why="a pinned package is not to be had for $("$python" --version) on this machine; Python 3.11, 3.12 and 3.13 on Linux are the ones tried"
  fi
  fail "$1: $why. Call again to go on: what was fetched is kept."
}

install() {
  # Unpacking needs more room than a small /tmp has, and what a stopped run leaves goes with .venv.
  mkdir -p "$venv/tmp"
  # By environment, not by option: the builds that pip starts must see these too, and a pip that does
  # not know one of them passes it over.
  TMPDIR=$PWD/$venv/tmp PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_USE_PEP517=true \
    PIP_USER=false PIP_DISABLE_PIP_VERSION_CHECK=true \
    "$venv/bin/python" -m pip install --log "$log" -e '.[dev,bench]' >&2 ||
    explain "could not install the packages"
  rm -rf "$venv/tmp"
}

python=$(find_python)
base=$("$python" -c 'import sys; print(sys.version, sys.base_prefix)' | cat - <(pwd) | hash_of)
packages=$(cat pyproject.toml constraints.txt tools/setup.sh | hash_of)
readonly python base packages

is_ready() { [[ -x $venv/bin/python ]] && stamp_says 1 "$base" && stamp_says 2 "$packages"; }

if is_ready; then
  exit 0
fi

mkdir -p .build
if command -v flock >/dev/null; then
  exec 9>.build/setup.lock
  flock --nonblock 9 || {
    say "setup: another call is at it; waiting for it to end"
    flock 9
  }
  if is_ready; then
    exit 0
  fi
fi

: >"$log"
if { stamp_says 1 "$base" || [[ ! -e $mark ]]; } && is_new_enough "$venv/bin/python"; then
  say "setup: bringing $venv up to date"
else
  say "setup: making $venv with $("$python" --version): some 450 MB to fetch the first time, a few minutes"
  make_venv
fi
rm -f "$stamp"
install
printf '%s\n' "$base" "$packages" >"$stamp.new"
mv "$stamp.new" "$stamp"
rm -f "$log" # tens of megabytes, of use only after a failure
say "setup: done in $SECONDS s"
