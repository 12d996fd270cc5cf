#!/usr/bin/env bash
# Installs what this repository needs into .venv. It returns at once if everything is installed already.
#
# `make` calls this script before each target that runs Python. A stamp in .venv, written last, says what
# the environment was made from. Without a stamp the environment is incomplete and is made again.
# PYTHON names the interpreter to use (default: the first of python3, python3.13, python3.12,
# python3.11 that is new enough).
#
#   tools/setup.sh        installs everything except the following
#   tools/setup.sh docs   also installs the tools of `make docs`; they have a stamp of their own
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

readonly part=${1:-}
readonly venv=.venv
readonly stamp=$venv/.tidelog-stamp${part:+-$part} # line 1: interpreter and place; line 2: what was installed
readonly mark=$venv/.tidelog-made   # this script made the directory, so it may remove it
readonly log=.build/setup.log
readonly free_mib_min=3500 # at the peak: the environment, the packages as fetched, and Spark being unpacked

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "setup: $*"
  exit 1
}

case $part in
  '') extras=dev,bench ;;
  docs)
    extras=docs
    tools/setup.sh # the environment itself
    ;;
  *) fail "there is no part $part; the only part is docs." ;;
esac
readonly extras

is_new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Prints the path of the interpreter itself, not of a link in a venv or of a version switcher: .venv must work
# after such a link is removed.
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
  version=$("$name" --version 2>/dev/null) || fail "Python 3.11 or newer is needed, and $name is not installed." \
    "On Debian or Ubuntu: apt install python3 python3-venv. Elsewhere name an interpreter: make PYTHON=/path/to/python3"
  fail "Python 3.11 or newer is needed; $name is $version." \
    "If a newer version is installed, name it: make PYTHON=/path/to/python3"
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
    fail "the disk is too full: $free_mib MiB are free in $PWD, $free_mib_min MiB are needed. Free some space."
}

make_venv() {
  check_can_make_venv
  if [[ -e $venv && ! -e $mark ]]; then
    fail "$venv was not made by this script and does not fit $python. Move it away and call again."
  fi
  rm -rf "$venv"
  mkdir "$venv"
  : >"$mark"
  "$python" -m venv "$venv" >>"$log" 2>&1 || explain "could not make a virtual environment in $venv"
}

explain() { # ends the script with the reason of the last failure, read from the log
  local why="see the lines above and $log"
  if grep -qF 'Operation cancelled by user' "$log"; then
    why="stopped"
  elif grep -qE 'No space left on device|Disk quota exceeded' "$log"; then
    why="the disk is full ($(df -Ph . | awk 'NR == 2 { print $4 }') free in $PWD)"
  elif grep -qE 'NewConnectionError|NameResolutionError|Temporary failure in name resolution|Network is unreachable|ConnectTimeout|ReadTimeout|ProxyError|SSLError|CERTIFICATE_VERIFY_FAILED' "$log"; then
    why="the package index cannot be reached; check the network, and pip's proxy and certificate settings (pip config list)"
  elif grep -qE 'No matching distribution found|Could not find a version' "$log"; then
    why="a pinned package is not available for $("$python" --version) on this machine; Python 3.11, 3.12 and 3.13 on Linux are tested"
  fi
  fail "$1: $why. Call again to continue: downloaded files are kept."
}

install() {
  # Unpacking needs more room than a small /tmp has. Files that a stopped run leaves are removed with .venv.
  mkdir -p "$venv/tmp"
  # Environment variables instead of options: the builds that pip starts must see them too, and a version
  # of pip that does not know a variable ignores it.
  TMPDIR=$PWD/$venv/tmp PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_USE_PEP517=true \
    PIP_USER=false PIP_DISABLE_PIP_VERSION_CHECK=true \
    "$venv/bin/python" -m pip install --log "$log" -e ".[$extras]" >&2 ||
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
    say "setup: another call is running; waiting for it to end"
    flock 9
  }
  if is_ready; then
    exit 0
  fi
fi

: >"$log"
if [[ -n $part ]]; then
  say "setup: adding what $part needs to $venv"
elif { stamp_says 1 "$base" || [[ ! -e $mark ]]; } && is_new_enough "$venv/bin/python"; then
  say "setup: updating $venv"
else
  say "setup: making $venv with $("$python" --version). The first time this downloads about 450 MB and takes a few minutes"
  make_venv
fi
rm -f "$stamp"
install
printf '%s\n' "$base" "$packages" >"$stamp.new"
mv "$stamp.new" "$stamp"
rm -f "$log" # tens of megabytes, useful only after a failure
say "setup: done in $SECONDS s"
