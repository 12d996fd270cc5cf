"""``tidelog acl``, ``token`` and ``whoami``: a cluster gets authentication in the documented steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cli.conftest import Answer, call
from support.broker import BrokerProcess
from tidelog.cli.errors import Exit


class Guarded(NamedTuple):
    """A broker with authentication, and the files of tokens."""

    broker: BrokerProcess
    admin: Path
    writer: Path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The steps of docs/operations.md."""
    folder = tmp_path_factory.mktemp("guarded")
    admin, writer = folder / "admin-token", folder / "orders-token"
    with BrokerProcess(folder) as broker, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDELOG_SERVER", broker.address)
        for words in (
            ("token", "create", "user:admin", "--expires", "365d", "--file", admin),
            ("token", "create", "user:orders-writer", "--file", writer),
            ("acl", "add", "user:orders-writer", "produce", "--stream", "orders*"),
        ):
            done = call(patch, words)
            assert done.code == 0, done
        broker.stop()
        broker.flags = ("--authentication", "required", "--superusers", "user:admin")
        broker.start()
        yield Guarded(broker, admin, writer)


Calling = Callable[..., Answer]


@pytest.fixture
def as_admin(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> Calling:
    return _calling(guarded.admin, guarded, monkeypatch)


@pytest.fixture
def as_writer(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> Calling:
    return _calling(guarded.writer, guarded, monkeypatch)


def _calling(token: Path, guarded: Guarded, patch: pytest.MonkeyPatch) -> Calling:
    patch.setenv("TIDELOG_SERVER", guarded.broker.address)
    return lambda *words: call(patch, ("--token-file", token, *words))


def found(calling: Calling, *words: object) -> Any:
    done = calling(*words, "--output", "json")
    assert done.code == 0, done
    return json.loads(done.out)


def test_whoami_names_the_principal(as_admin: Calling, as_writer: Calling) -> None:
    assert found(as_admin, "whoami") == {
        "principal": "user:admin",
        "groups": [],
        "superuser": True,
        "authentication": True,
    }
    assert "user:orders-writer" in as_writer("whoami").out


def test_whoami_says_that_authentication_is_off(
    tidelog: Calling,
) -> None:
    assert "off: each client may do everything" in tidelog("whoami").out


def test_a_command_without_a_token_is_refused_with_a_code_of_its_own(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_SERVER", guarded.broker.address)
    done = call(monkeypatch, ("stream", "list"))

    assert done.code == Exit.DENIED
    assert done.err == ("tidelog: this call has no credentials; give a token or a client certificate\n")


def test_the_token_can_stand_in_the_environment(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_SERVER", guarded.broker.address)
    monkeypatch.setenv("TIDELOG_CLIENT_TOKEN", guarded.writer.read_text())
    assert "user:orders-writer" in call(monkeypatch, ("whoami",)).out

    monkeypatch.setenv("TIDELOG_CLIENT_TOKEN_FILE", str(guarded.admin))
    assert "user:admin" in call(monkeypatch, ("whoami",)).out


def test_a_writer_can_do_what_the_rule_allows(as_admin: Calling, as_writer: Calling, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\n")
    assert as_admin("stream", "create", "orders.eu").code == 0
    assert as_admin("stream", "create", "secret").code == 0

    assert as_writer("produce", "orders.eu", "--file", tmp_path / "lines").code == 0
    assert [one["name"] for one in found(as_writer, "stream", "list")] == ["orders.eu"]
    for words in (
        ("consume", "orders.eu"),
        ("stream", "delete", "orders.eu", "--yes"),
        ("cluster", "describe"),
    ):
        done = as_writer(*words)
        assert done.code == Exit.DENIED
        assert "user:orders-writer may not" in done.err
    hidden, absent = (as_writer("stream", "describe", name) for name in ("secret", "absent"))
    assert (hidden.code, hidden.err.replace("secret", "absent")) == (absent.code, absent.err)


def test_check_says_by_which_rule(as_admin: Calling, as_writer: Calling) -> None:
    yes = as_admin("acl", "check", "user:orders-writer", "produce", "--stream", "orders.eu")
    no = as_admin("acl", "check", "user:orders-writer", "consume", "--stream", "orders.eu")
    mine = as_writer("acl", "check", "me", "describe", "--cluster")
    admins = as_admin("acl", "check", "me", "admin", "--cluster")

    assert (yes.code, yes.out) == (0, "yes: allow user:orders-writer produce stream orders*\n")
    assert (no.code, no.out) == (Exit.DENIED, "no: no rule allows it\n")
    assert (mine.code, mine.out) == (Exit.DENIED, "no: no rule allows it\n")
    assert (admins.code, admins.out) == (0, "yes: user:admin is a superuser\n")
    assert as_writer("acl", "check", "user:admin", "admin", "--cluster").code == Exit.DENIED


def test_rules_are_added_listed_and_removed(as_admin: Calling) -> None:
    added = as_admin("acl", "add", "group:analysts", "consume,describe", "--stream", "pay*")
    again = as_admin("acl", "add", "group:analysts", "consume", "--stream", "pay*")
    denied = as_admin("acl", "add", "*", "consume", "--stream", "payroll", "--deny")
    member = ("acl", "check", "user:ann", "consume", "--member", "group:analysts", "--stream")

    assert added.out.splitlines() == [
        "added: allow group:analysts consume stream pay*",
        "added: allow group:analysts describe stream pay*",
    ]
    assert again.out == "1 rule existed already\n"
    assert denied.code == 0
    assert as_admin(*member, "payments").code == 0
    assert as_admin(*member, "payroll").out == "no: deny * consume stream payroll\n"
    assert len(found(as_admin, "acl", "list", "--principal", "group:analysts")) == 2
    removed = as_admin("acl", "remove", "group:analysts", "consume,describe", "--stream", "pay*")
    assert removed.code == 0
    assert as_admin("acl", "remove", "*", "consume", "--stream", "payroll", "--deny").code == 0
    assert as_admin("acl", "remove", "*", "consume", "--stream", "payroll", "--deny").code == Exit.NOT_FOUND


def test_a_token_is_shown_once_listed_and_deleted(as_admin: Calling, tmp_path: Path) -> None:
    made = found(as_admin, "token", "create", "user:ann", "--note", "laptop")
    listed = found(as_admin, "token", "list", "--user", "user:ann")

    assert made["token"].startswith("tlt_")
    assert [one["token_id"] for one in listed] == [made["token_id"]]
    assert "token" not in listed[0]
    assert "laptop" in as_admin("token", "list").out
    assert as_admin("token", "delete", made["token_id"]).code == 0
    assert found(as_admin, "token", "list", "--user", "user:ann") == []


def test_a_token_in_a_file_is_for_its_owner_alone(guarded: Guarded, as_admin: Calling) -> None:
    assert guarded.admin.stat().st_mode & 0o777 == 0o600
    done = as_admin("token", "create", "user:ann", "--file", guarded.admin)

    assert (done.code, "exists already" in done.err) == (Exit.CONFLICT, True)
    assert found(as_admin, "token", "list", "--user", "user:ann") == []


def test_no_file_is_left_of_a_token_that_was_refused(as_admin: Calling, tmp_path: Path) -> None:
    done = as_admin("token", "create", "group:x", "--file", tmp_path / "token")

    assert done.code == Exit.USAGE
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_no_token(as_admin: Calling, tmp_path: Path) -> None:
    done = as_admin("token", "create", "user:ann", "--file", tmp_path / "absent" / "token")

    assert (done.code, "cannot be written" in done.err) == (Exit.ENVIRONMENT, True)
    assert found(as_admin, "token", "list", "--user", "user:ann") == []


def test_quotas_are_set_listed_and_deleted(as_admin: Calling, as_writer: Calling) -> None:
    assert as_admin("quota", "set", "user:orders-writer", "--produce", "10MiB", "--requests", "500").code == 0
    assert found(as_admin, "quota", "list") == [
        {
            "principal": "user:orders-writer",
            "produce_bytes_per_second": 10 << 20,
            "fetch_bytes_per_second": 0,
            "requests_per_second": 500,
            "calls_max": 0,
        }
    ]
    assert "user:orders-writer" in as_admin("quota", "list").out
    assert as_writer("quota", "list").code == Exit.DENIED
    assert as_admin("quota", "delete", "user:orders-writer").code == 0
    assert as_admin("quota", "delete", "user:orders-writer").code == Exit.USAGE


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("acl", "add", "ann", "produce", "--stream", "x"), "is not a principal; give user:NAME"),
        (("acl", "add", "user:ann", "write", "--stream", "x"), "'write' is not an operation"),
        (("acl", "add", "user:ann", "produce"), "give one of --stream, --group and --cluster"),
        (("acl", "add", "user:ann", "produce", "--stream", "x", "--cluster"), "give one of --stream"),
        (("acl", "add", "user:ann", "commit", "--stream", "x"), "a stream has no operation commit"),
        (("acl", "check", "user:ann", "all", "--stream", "x"), "has no operation all"),
        (("token", "create", "group:x"), "give user:NAME"),
        (("token", "create", "user:ann", "--expires", "soon"), "give a duration such as 90d"),
        (("quota", "set", "user:ann"), "the quota limits nothing"),
        (("quota", "set", "user:ann", "--produce", "much"), "is not a size"),
        (("token", "delete", "nothing"), "there is no token with id 'nothing'"),
    ],
)
def test_wrong_input_is_told_in_one_sentence(
    as_admin: Calling, words: tuple[str, ...], sentence: str
) -> None:
    done = as_admin(*words)

    assert done.code == Exit.USAGE
    assert sentence in done.err
    assert done.err.count("\n") == 1
