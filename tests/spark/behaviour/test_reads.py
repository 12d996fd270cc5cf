"""Each option of a read, with good values and their effect, and with bad values and their sentence."""

from __future__ import annotations

import pytest

from spark.behaviour.case import Bad, Good
from spark.behaviour.engines import Engine, fail, run
from spark.behaviour.reads import FOREIGN, READS
from spark.behaviour.typed_values import TYPED_VALUES
from spark.brokers import Brokers
from tidelog_spark.failures import sentence_of

# The first test to ask for a session waits for its Java process as well.
pytestmark = pytest.mark.timeout(300)

TABLE = {**READS, **TYPED_VALUES}


def _good() -> list[object]:
    return [
        pytest.param(case, id=f"{option}-{number}")
        for option, one in TABLE.items()
        for number, case in enumerate(one.good)
    ]


def _bad() -> list[object]:
    return [
        pytest.param(case, id=f"{option}-{number}")
        for option, cases in {**{option: one.bad for option, one in TABLE.items()}, "other": FOREIGN}.items()
        for number, case in enumerate(cases)
    ]


@pytest.mark.parametrize("case", _good())
def test_a_good_value_has_its_effect(case: Good, engine: Engine, servers: Brokers) -> None:
    result = run(engine, case, servers)

    if case.found is not None:
        assert result.rows == list(case.found)
    if case.columns is not None:
        assert result.columns == tuple(case.columns)
    if case.tasks is not None:
        assert result.parts == (case.tasks,)
    if case.batches is not None:
        assert result.parts == tuple(case.batches)


@pytest.mark.parametrize("case", _bad())
def test_a_bad_value_is_refused_with_its_sentence(case: Bad, engine: Engine, servers: Brokers) -> None:
    with pytest.raises(Exception) as failure:
        fail(engine, case, servers)

    assert sentence_of(failure.value) == case.sentence
