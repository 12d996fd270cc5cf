"""A volume with a lake and a catalog, and pods beside it that write records and check what landed."""

from __future__ import annotations

import json
from typing import Any, Final

from e2e import store
from e2e.kube import Kube, wait_until
from e2e.load.pod import pod_manifest
from e2e.release import NATS, REGISTRY, SERVER, TAG

CLAIM: Final = "lake"
PLACE: Final = "/lake"
POD: Final = "lake"
TABLES_POD: Final = "tables"
"""The pod with the image of Spark jobs: it has PyIceberg, and PyArrow with its client of object stores."""
START_SECONDS_MAX: Final = 120.0
COMPARE_SECONDS_MAX: Final = 300.0

CATALOG: Final = f"sqlite:///{PLACE}/catalog.db"
WAREHOUSE: Final = f"s3://{store.BUCKET}/warehouse"

FILES: Final = """
import pathlib, sys

for one in pathlib.Path(sys.argv[1]).rglob("*"):
    if one.is_file():
        print(one)
"""

PUBLISH: Final = f"""
import asyncio, sys, nats

async def main(first, count):
    client = await nats.connect("{NATS}")
    for number in range(first, first + count):
        await client.publish("sales.{{}}".format(number % 7), b"sale %d" % number)
    await client.flush()
    await client.close()

asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
"""

APPEND: Final = f"""
import asyncio, sys, tidelog

async def main(stream, first, count):
    async with tidelog.connect("{SERVER}") as log, log.producer(stream) as producer:
        numbers = range(first, first + count)
        await asyncio.gather(*(producer.send(b"sale %d" % one, key=b"%d" % (one % 7)) for one in numbers))

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""
"""Every record is acknowledged when this ends, whatever the brokers do meanwhile."""

RECORDS: Final = f"""
import asyncio, json, sys, tidelog

async def of_stream(stream, count):
    async with tidelog.connect("{SERVER}") as log:
        reader = log.reader(stream, start="earliest")
        found = [await anext(reader) for _ in range(count)]
        return sorted((each.partition, each.offset, bytes(each.value)) for each in found)

def compare(found, stream, count):
    rows = sorted(zip(*(found[name].to_pylist() for name in ("partition", "offset", "value")), strict=True))
    records = asyncio.run(of_stream(stream, count))
    once = len(set(rows)) == len(rows)
    print(json.dumps({{"rows": len(rows), "once": once, "same": rows == records}}))
"""

COMPARE_FILES: Final = f"""
{RECORDS}
import pyarrow.dataset

lake = pyarrow.dataset.dataset(sys.argv[1], format="parquet").to_table(["partition", "offset", "value"])
compare(lake, sys.argv[2], int(sys.argv[3]))
"""
"""Compares partitions, offsets and values of all rows with those of the stream's records."""

COMPARE_TABLE: Final = f"""
{RECORDS}
from pyiceberg.catalog import load_catalog

catalog = {{"type": "sql", "uri": "{CATALOG}", "warehouse": "{WAREHOUSE}"}}
files = {{"s3.endpoint": "{store.ENDPOINT}", "s3.region": "{store.REGION}"}}
table = load_catalog("tidelog", **catalog, **files).load_table(sys.argv[1])
compare(table.scan().to_arrow(), sys.argv[2], int(sys.argv[3]))
"""

MAKE_BUCKET: Final = f"""
import os
from pyarrow import fs

place = {{"endpoint_override": "{store.ENDPOINT}", "region": "{store.REGION}"}}
fs.S3FileSystem(**place, allow_bucket_creation=True).create_dir("{store.BUCKET}")
"""


class Lake:
    """The volume, mounted at `PLACE` in pods that stay."""

    def __init__(self, kube: Kube, *, node: str) -> None:
        """`node`: the node of these pods, where no fault happens; empty: any node."""
        self._kube = kube
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        sleep = "import time; time.sleep(10**6)"
        client = pod_manifest(POD, f"{REGISTRY}/client:{TAG}", ["-c", sleep], node=node, files=False)
        tables = pod_manifest(
            TABLES_POD, f"{REGISTRY}/spark:{TAG}", ["python3", "-c", sleep], node=node, files=False
        )
        tables["spec"]["containers"][0]["env"] = store.ENV
        for pod in (client, tables):
            pod["spec"]["volumes"].append({"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}})
            pod["spec"]["containers"][0]["volumeMounts"].append({"name": CLAIM, "mountPath": PLACE})
        self.store = store.Store(kube, node=node)
        kube.apply(claim, client, tables)

        def lack() -> str:
            phases = {
                name: (kube.get("pod", name) or {"status": {}})["status"].get("phase")
                for name in (POD, TABLES_POD)
            }
            return "" if set(phases.values()) == {"Running"} else f"pods of the lake are {phases}"

        wait_until(lack, START_SECONDS_MAX)
        self._kube.exec(TABLES_POD, "python3", "-c", MAKE_BUCKET)

    def __repr__(self) -> str:
        return f"<Lake {CLAIM}>"

    def publish(self, first: int, count: int) -> None:
        """Publishes numbered messages for the stream `sales` to NATS."""
        self._kube.exec(POD, "python3", "-c", PUBLISH, str(first), str(count))

    def append(self, stream: str, first: int, count: int) -> None:
        """Appends numbered records to a stream, and waits until all are acknowledged."""
        self._kube.exec(POD, "python3", "-c", APPEND, stream, str(first), str(count))

    def compare(self, folder: str, stream: str, count: int) -> dict[str, Any]:
        """Compares the Parquet files in a folder with the first `count` records of the stream. Waits until
        the stream has them."""
        return self._compared(POD, COMPARE_FILES, f"{PLACE}/{folder}", stream, count)

    def compare_table(self, table: str, stream: str, count: int) -> dict[str, Any]:
        """The same for an Iceberg table in the object store, as PyIceberg reads it."""
        return self._compared(TABLES_POD, COMPARE_TABLE, table, stream, count)

    def _compared(self, pod: str, program: str, target: str, stream: str, count: int) -> dict[str, Any]:
        command = ("python3", "-c", program, target, stream, str(count))
        found: dict[str, Any] = json.loads(self._kube.exec(pod, *command, seconds=COMPARE_SECONDS_MAX))
        return found

    def files(self, folder: str) -> list[str]:
        """Returns the names of all files below a folder; empty: there is no such folder."""
        return self._kube.exec(POD, "python3", "-c", FILES, f"{PLACE}/{folder}").splitlines()

    def close(self) -> None:
        """Removes the pods, the volume with its files, and the store."""
        self._kube.kubectl("delete", f"pod/{POD}", f"pod/{TABLES_POD}", f"pvc/{CLAIM}", seconds=120)
        self.store.close()
