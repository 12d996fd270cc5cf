"""The persistent map against a dict, and old versions that stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.core.metadata.persistent import PersistentMap

keys = st.sampled_from([f"key-{number}" for number in range(40)])
steps = st.lists(st.tuples(st.booleans(), keys, st.integers()), max_size=60)


@given(steps)
def test_it_behaves_like_a_dict_and_every_old_version_stays(changes: list[tuple[bool, str, int]]) -> None:
    current: PersistentMap[str, int] = PersistentMap()
    twin: dict[str, int] = {}
    versions = [(current, dict(twin))]
    for put, key, value in changes:
        if put:
            current = current.set(key, value)
            twin[key] = value
        else:
            current = current.remove(key)
            twin.pop(key, None)
        versions.append((current, dict(twin)))

    for version, expected in versions:
        assert dict(version.items()) == expected
        assert len(version) == len(expected)
        assert set(version) == set(expected)
        assert sorted(version.values()) == sorted(expected.values())
        assert all(key in version and version[key] == version.find(key) for key in expected)
        assert version == expected


@given(st.dictionaries(keys, st.integers(0, 3)), st.dictionaries(keys, st.integers(0, 3)))
def test_changes_name_exactly_what_became_another_object(old: dict[str, int], new: dict[str, int]) -> None:
    before = PersistentMap[str, int]().update(old)
    after = before.update(new)
    for key in old.keys() - new.keys():
        after = after.remove(key)

    found = {key: (was, now) for key, was, now in after.changes(before)}

    assert found == {
        key: (old.get(key), new.get(key)) for key in old.keys() | new.keys() if old.get(key) != new.get(key)
    }


def test_what_is_not_there_is_not_there() -> None:
    empty: PersistentMap[bytes, int] = PersistentMap()

    assert empty.find(b"x") is None
    assert b"x" not in empty
    assert 5 not in empty
    assert empty.remove(b"x") is empty
    assert empty.update({}) is empty


def test_its_order_is_the_same_in_every_process() -> None:
    assert list(PersistentMap[str, int]().update({"a": 1, "b": 2, "c": 3, "d": 4})) == ["a", "c", "d", "b"]
