"""tools/setup.sh with stand-ins for Python and df: what the script makes, repairs, keeps and prints.

Every run of `make test` in a fresh clone shows that the real packages can be installed.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

FAKE_PYTHON = """\
#!/bin/bash
case "$*" in
  *_base_executable*) echo "$0" ;;
  *"venv, ensurepip"*) [[ -z ${NO_VENV:-} ]] ;;
  *"version_info < (3, 11)"*) [[ -z ${OLD:-} ]] ;;
  *sys.base_prefix*) echo "3.11.0 /usr" ;;
  --version) echo "Python ${OLD:-3.11.0}" ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip install "*) echo "$*" >>calls; printf '%s\\n' "${PIP_SAYS:-}" >>"$5"; [[ -z ${PIP_SAYS:-} ]] ;;
  *) echo "not expected: $*" >&2; exit 99 ;;
esac
"""
FAKE_DF = """\
#!/bin/bash
printf 'Filesystem 1M-blocks Used Available Use%% Mounted\\nd 1 1 %s 1%% /\\n' "${FREE_MIB:-9999}"
"""

Setup = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def clone(repository: Path, tmp_path: Path) -> Path:
    """A folder with the files that the script reads, and the stand-ins in `bin/`."""
    for name in ["pyproject.toml", "constraints.txt", "tools/setup.sh"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(repository / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    for name, text in [("python3", FAKE_PYTHON), ("df", FAKE_DF)]:
        (tmp_path / "bin" / name).write_text(text, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def setup(clone: Path) -> Setup:
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{clone / 'bin'}:{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if name != "PYTHON"}
        return subprocess.run(
            [clone / "tools/setup.sh", *arguments],
            env=kept | {"PATH": path} | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def installs(clone: Path) -> int:
    return (
        len((clone / "calls").read_text(encoding="utf-8").splitlines()) if (clone / "calls").exists() else 0
    )


def test_a_second_call_does_and_prints_nothing(setup: Setup, clone: Path) -> None:
    assert setup().returncode == 0

    second = setup()

    assert (second.returncode, second.stderr, installs(clone)) == (0, "", 1)


def test_changed_constraints_are_installed_into_the_same_environment(setup: Setup, clone: Path) -> None:
    setup()
    (clone / ".venv/kept").touch()
    with (clone / "constraints.txt").open("a", encoding="utf-8") as constraints:
        constraints.write("another==1\n")

    assert setup().returncode == 0

    assert installs(clone) == 2
    assert (clone / ".venv/kept").exists()


def test_an_incomplete_environment_is_made_again(setup: Setup, clone: Path) -> None:
    setup(PIP_SAYS="Operation cancelled by user")
    (clone / ".venv/half-installed").touch()

    assert setup().returncode == 0

    assert not (clone / ".venv/half-installed").exists()
    assert setup().stderr == ""


def test_a_moved_clone_gets_a_new_environment(setup: Setup, clone: Path) -> None:
    setup()
    stamp = clone / ".venv/.tidelog-stamp"
    stamp.write_text("made elsewhere\n" + stamp.read_text(encoding="utf-8").splitlines()[1], encoding="utf-8")
    (clone / ".venv/from-elsewhere").touch()

    assert setup().returncode == 0

    assert not (clone / ".venv/from-elsewhere").exists()


def test_an_environment_that_the_user_made_is_used_and_never_removed(setup: Setup, clone: Path) -> None:
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/theirs").touch()

    without_python = setup()
    shutil.copy(clone / "bin/python3", clone / ".venv/bin/python")
    with_python = setup()

    assert (without_python.returncode, with_python.returncode) == (1, 0)
    assert "Move it away" in without_python.stderr
    assert (clone / ".venv/theirs").exists()


def test_the_tools_of_the_site_are_added_once_to_a_complete_environment(setup: Setup, clone: Path) -> None:
    first, second = setup("docs"), setup("docs")

    calls = (clone / "calls").read_text(encoding="utf-8").splitlines()
    assert [call.rpartition(" ")[2] for call in calls] == [".[dev,bench]", ".[docs]"]
    assert (first.returncode, second.returncode, second.stderr) == (0, 0, "")


def test_the_tools_of_the_site_are_no_part_of_the_environment_otherwise(setup: Setup, clone: Path) -> None:
    setup()

    assert "docs" not in (clone / "calls").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"OLD": "3.10.1"}, "Python 3.11 or newer is needed; python3 is Python 3.10.1."),
        (
            {"PYTHON": "no-such-python"},
            "Python 3.11 or newer is needed, and no-such-python is not installed.",
        ),
        ({"NO_VENV": "1"}, "apt install python3-venv"),
        ({"FREE_MIB": "12"}, "the disk is too full: 12 MiB are free"),
        ({"PIP_SAYS": "OSError: [Errno 28] No space left on device"}, "the disk is full"),
        ({"PIP_SAYS": "NewConnectionError: refused"}, "the package index cannot be reached"),
        ({"PIP_SAYS": "ERROR: No matching distribution found for x"}, "Python 3.11, 3.12 and 3.13 on Linux"),
        ({"PIP_SAYS": "Operation cancelled by user"}, "stopped. Call again to continue"),
    ],
)
def test_the_last_line_says_in_one_sentence_what_failed(
    setup: Setup, environment: dict[str, str], sentence: str
) -> None:
    if "OLD" in environment:
        environment = environment | {"PYTHON": "python3"}  # and not another version that is installed here

    failed = setup(**environment)

    assert failed.returncode == 1
    assert sentence in failed.stderr.splitlines()[-1]
