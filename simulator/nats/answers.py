"""Reads the brokers' answers to publishers from their connections to NATS servers, for the checks (N5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from simulator.checks import Checks
from simulator.nats.commands import Command, Commands
from simulator.nats.server import CLIENT_PORT

if TYPE_CHECKING:
    from simulator.kernel.network import Address, Observer, Tap
    from simulator.node import Node

PAYLOAD_BYTES_MAX: Final = 1 << 30


class AnswerTap:
    """The bytes that one broker sends to a NATS server."""

    def __init__(self, checks: Checks, node: Node) -> None:
        self._checks = checks
        self._node = node
        self._commands = Commands(PAYLOAD_BYTES_MAX)

    def said(self, data: bytes) -> None:
        for command in self._commands.take(data):
            if command.verb == "PUB":
                with self._checks.kept():
                    self._answered(command)

    def _answered(self, command: Command) -> None:
        body = json.loads(command.payload)
        if "error" in body:
            self._checks.refused_publisher(self._node.id, command.words[0])
            return
        stream = self._checks.image.stream_named(body["stream"])
        if stream is not None:
            key = (stream.id, int(body["partition"]))
            self._checks.told_publisher(self._node.id, key, int(body["epoch"]), int(body["offset"]))


def answers_too(tap: Tap, checks: Checks, nodes: dict[str, Node]) -> Tap:
    """Adds to `tap` observers of the bytes that brokers send to NATS servers; `nodes`: by host."""

    def listen(source: str, target: Address) -> tuple[Observer | None, Observer | None]:
        node = nodes.get(source)
        if target[1] != CLIENT_PORT or node is None:
            return tap(source, target)
        return AnswerTap(checks, node).said, None

    return listen
