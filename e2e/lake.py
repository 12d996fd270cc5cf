"""A volume with a lake, and a pod beside it that writes records and compares them with the lake's files."""

from __future__ import annotations

import json
from typing import Any, Final

from e2e.kube import Kube, wait_until
from e2e.load.pod import pod_manifest
from e2e.release import NATS, REGISTRY, SERVER, TAG

CLAIM: Final = "lake"
PLACE: Final = "/lake"
POD: Final = "lake"
START_SECONDS_MAX: Final = 60.0

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

COMPARE: Final = f"""
import asyncio, json, sys, tidelog, pyarrow.dataset

async def of_stream(stream, count):
    async with tidelog.connect("{SERVER}") as log:
        reader = log.reader(stream, start="earliest")
        found = [await anext(reader) for _ in range(count)]
        return sorted((each.partition, each.offset, bytes(each.value)) for each in found)

lake = pyarrow.dataset.dataset(sys.argv[1], format="parquet").to_table(["partition", "offset", "value"])
rows = sorted(zip(*(lake[name].to_pylist() for name in ("partition", "offset", "value")), strict=True))
records = asyncio.run(of_stream(sys.argv[2], int(sys.argv[3])))
print(json.dumps({{"rows": len(rows), "same": rows == records}}))
"""
"""Compares partitions, offsets and values of all rows with those of the stream's records."""


class Lake:
    """The volume, mounted at `PLACE` in a pod that stays."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        pod = pod_manifest(
            POD, f"{REGISTRY}/client:{TAG}", ["-c", "import time; time.sleep(10**6)"], files=False
        )
        pod["spec"]["volumes"].append({"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}})
        pod["spec"]["containers"][0]["volumeMounts"].append({"name": CLAIM, "mountPath": PLACE})
        kube.apply(claim, pod)

        def lack() -> str:
            phase = (kube.get("pod", POD) or {"status": {}})["status"].get("phase")
            return "" if phase == "Running" else f"the pod {POD} is {phase}"

        wait_until(lack, START_SECONDS_MAX)

    def __repr__(self) -> str:
        return f"<Lake {CLAIM}>"

    def publish(self, first: int, count: int) -> None:
        """Publishes numbered messages for the stream `sales`."""
        self._kube.exec(POD, "python3", "-c", PUBLISH, str(first), str(count))

    def compare(self, folder: str, stream: str, count: int) -> dict[str, Any]:
        """Compares the Parquet files in a folder with the first `count` records of the stream. Waits until
        the stream has them."""
        said = self._kube.exec(POD, "python3", "-c", COMPARE, f"{PLACE}/{folder}", stream, str(count))
        found: dict[str, Any] = json.loads(said)
        return found

    def files(self, folder: str) -> list[str]:
        """Returns the names of all files below a folder."""
        return self._kube.exec(POD, "find", f"{PLACE}/{folder}", "-type", "f").splitlines()

    def close(self) -> None:
        """Removes the pod and the volume with its files."""
        self._kube.kubectl("delete", f"pod/{POD}", f"pvc/{CLAIM}", seconds=120)
