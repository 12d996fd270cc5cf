"""An image of one static program: an OCI layout of one file, built without a container engine.

The image whose process holds the namespaces of a pod is made this way, and the object store of tests.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any, Final

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
MEDIA: Final = "application/vnd.oci.image"


USER: Final = "65532"


def write_program_image(program: Path, name: str, target: Path) -> None:
    """Writes the image. `name`: of the image, with its tag. `target`: a tar file for `ctr images import`. The
    same program gives the same bytes."""
    layer = _tar({program.name: (program.read_bytes(), 0o755)})
    config = _json({
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": USER},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    })  # fmt: skip
    manifest = _json({
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": _blob(config, "config.v1+json"),
        "layers": [_blob(layer, "layer.v1.tar")],
    })  # fmt: skip
    named = {"annotations": {"io.containerd.image.name": name}}
    index = _json({"schemaVersion": 2, "manifests": [_blob(manifest, "manifest.v1+json") | named]})
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": index}
    for blob in (layer, config, manifest):
        files[f"blobs/{_digest(blob).replace(':', '/')}"] = blob
    target.write_bytes(_tar({name: (content, 0o644) for name, content in files.items()}))


def _blob(content: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": f"{MEDIA}.{kind}", "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
