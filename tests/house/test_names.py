"""Modules that docstrings and documents name exist. The docstring of a package names each of its modules."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator

import pytest

from docs.documents import all_documents, text_of
from house import sources
from house.markdown import code_spans
from house.sources import Module

DOTTED = re.compile(r"[a-z_][a-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")
BARE = re.compile(r"[a-z_][a-z0-9_]*")
NEIGHBOURS = re.compile(r"\bNeighbours?\b.*?(?:\.(?=\s|$)|\Z)", re.DOTALL)
MAP_ENTRY = re.compile(r"^- ((?:`[^`]+`(?:, | and )?)+)", re.MULTILINE)

NOT_MODULES = {
    "sink.iceberg.catalog": "a key of a job's configuration",
    "sink.iceberg.compactSmallFiles": "a key of a job's configuration",
    "sink.iceberg.expireSnapshotsOlderThan": "a key of a job's configuration",
    "sink.iceberg.table": "a key of a job's configuration",
    "sink.parquet.compactSmallFiles": "a key of a job's configuration",
    "sink.parquet.path": "a key of a job's configuration",
    "config.partitions": "a field of a stream's configuration",
    "history.jsonl": "a file",
    "nats.enabled": "a value of the chart",
    "nats.log": "a file",
    "nats.url": "a value of the chart",
    "replication.factor": "an option of Kafka",
    "tidelog.bootstrap.servers": "an option of the Spark source",
    "tidelog.tls": "an option of the Spark source",
    "tidelog.tls.authorities": "an option of the Spark source",
    "tidelog.tls.certificate": "an option of the Spark source",
    "tidelog.tls.key": "an option of the Spark source",
    "tidelog.token.file": "an option of the Spark source",
    "tidelog.v1": "the package of the gRPC API",
    "grpc.aio": "a part of gRPC",
    "grpc.aio.Channel": "a class of gRPC",
    "jdk.incubator.vector": "a module of Java",
    "meta.json": "a file",
    "pods.count": "a value of the operator",
    "segment.size": "an attribute",
    "spark.sql.shuffle.partitions": "a setting of Spark",
    "spec.template": "a field of a Kubernetes object",
    "tidelog.v1.Acks": "an enum of the gRPC API",
}
"""Dotted names in backticks that look like modules and are something else."""


def prefixes(module: Module) -> Iterator[str]:
    """What may be left out before a dotted name: a package that holds the module, or any root package."""
    package = module.package
    while package:
        yield package + "."
        package = package.rpartition(".")[0]
    yield ""
    yield from (root + "." for root in sources.SOURCE_ROOTS)


def names_something(full: str) -> bool:
    """Whether it is a module, or a module followed by names that stand in it."""
    modules = sources.modules()
    if full in modules:
        return True
    parts = full.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = modules.get(".".join(parts[:end]))
        if module is not None:
            return set(parts[end:]) <= module.names
    return False


def stale_dotted_names(module: Module, spans: Iterable[str]) -> set[str]:
    """Dotted names among the texts in backticks that name no module, as seen from `module`."""
    names = {span for span in spans if DOTTED.fullmatch(span)}
    return {
        name
        for name in names - NOT_MODULES.keys()
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not any(names_something(prefix + name) for prefix in prefixes(module))
    }


def spans_of(module: Module) -> list[str]:
    """What stands in backticks in the docstrings of a module."""
    return [span for text in module.strings() for span in sources.spans(text)]


def stale_neighbours(module: Module) -> set[str]:
    """Bare names in the sentence about neighbours that are neither a module nor a name of this module."""
    somewhere = {part for name in sources.modules() for part in name.split(".")} | module.names
    sentences = NEIGHBOURS.findall(module.docstring)
    return {
        span
        for text in sentences
        for span in sources.spans(text)
        if BARE.fullmatch(span) and span not in somewhere
    }


def stale_map_entries(package: Module) -> set[str]:
    """Names at the beginning of a line of the map that are no module of the package."""
    entries = {span for entry in MAP_ENTRY.findall(package.docstring) for span in sources.spans(entry)}
    return {name for name in entries if BARE.fullmatch(name)} - sources.children(package.name)


def unnamed_modules(package: Module) -> set[str]:
    words = {word for span in sources.spans(package.docstring) for word in re.findall(r"\w+", span)}
    return {
        name
        for name in sources.children(package.name) - words
        if name != "__main__" and not name.startswith(("test_", "conftest"))
    }


def test_dotted_names_in_docstrings_exist() -> None:
    stale = {
        (name, span)
        for name, module in sources.modules().items()
        for span in stale_dotted_names(module, spans_of(module))
    }

    assert stale == set()


@pytest.mark.parametrize("document", all_documents())
def test_dotted_names_of_modules_in_documents_exist(document: str) -> None:
    """Names that do not begin with a package of ours are something else: settings, fields, options."""
    broker = sources.modules()["tidelog_broker"]
    ours = {*sources.SOURCE_ROOTS, *sources.children("tidelog_broker"), *sources.children("tidelog")}
    spans = [span for span in code_spans(text_of(document)) if span.partition(".")[0] in ours]

    assert stale_dotted_names(broker, spans) == set()


def test_neighbours_in_module_docstrings_exist() -> None:
    stale = {(name, span) for name, module in sources.modules().items() for span in stale_neighbours(module)}

    assert stale == set()


def test_the_map_in_a_package_docstring_lists_only_its_modules() -> None:
    packages = [module for module in sources.modules().values() if module.is_package]
    stale = {(package.name, span) for package in packages for span in stale_map_entries(package)}

    assert stale == set()


def test_a_package_docstring_names_each_of_its_modules() -> None:
    packages = [module for module in sources.modules().values() if module.is_package]
    unnamed = {f"{package.name}.{name}" for package in packages for name in unnamed_modules(package)}

    assert unnamed == set()


def of(docstring: str, name: str = "tidelog_broker.storage.log.planted", path: str = "planted.py") -> Module:
    """A module that is not there, with this docstring."""
    tree = ast.parse(f'"""{docstring}"""')
    return Module(name, sources.ROOT / path, tree)


@pytest.mark.parametrize("stale", ["storage.logs.reader", "reader.NoSuchReader", "runtime.partition"])
def test_a_stale_dotted_name_is_found(stale: str) -> None:
    module = of(f"Uses `{stale}`, `storage.log.reader` and ``tidelog.records.codec``, in `meta.json`.")

    assert stale_dotted_names(module, spans_of(module)) == {stale}


def test_a_stale_neighbour_is_found() -> None:
    module = of("Reads. Neighbours: `reader` reads, and\n`no_such_module` writes. It has `no_such_field`.")

    assert stale_neighbours(module) == {"no_such_module"}


def test_a_missing_and_a_superfluous_entry_of_a_map_are_found() -> None:
    package = of(
        "Indexes.\n\n- `index`, `gone` ends\n- `segment` is one",
        "tidelog_broker.storage.segments",
        "__init__.py",
    )

    assert stale_map_entries(package) == {"gone"}
    assert "scan" in unnamed_modules(package)
    assert "index" not in unnamed_modules(package)
