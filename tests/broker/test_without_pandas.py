"""A broker does not import pandas, whoever installed it: that would pause the first round that it leads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.api import Api
from support.broker import BrokerProcess

ASKED = """
import sys
from tidelog.without_pandas import leave_pandas_out
leave_pandas_out()
import pyarrow
assert pyarrow.array([b"x"]).to_pylist() == [b"x"]
assert "pandas" not in sys.modules
import pandas
"""


def test_pyarrow_works_without_it() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=False)

    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: pandas is left out of this process"


async def test_a_broker_that_recorded_something_has_not_loaded_it(broker: BrokerProcess, api: Api) -> None:
    stream = await api.create("no-pandas")
    await api.publish(stream, b"a record that the broker encodes itself")

    loaded = Path(f"/proc/{broker.pid}/maps").read_text()

    assert "/pyarrow/" in loaded
    assert "/pandas/" not in loaded
