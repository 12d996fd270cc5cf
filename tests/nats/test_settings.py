"""Addresses of NATS servers: each fault has a sentence, and none of them tells a secret."""

import pytest

from tidelog_broker.nats.errors import ServerAddressInvalid
from tidelog_broker.nats.settings import parse_server


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("foo://secret@host", "not with foo://"),
        ("nats://secret@host:port", "the port of NATS server host is not a port"),
        ("nats://host:65536", "a number up to 65535"),
        ("nats://user:secret", "the port of NATS server user is not a port"),
        ("nats://user:sec/ret@host", "write %2F"),
        ("nats://sec#ret@host", "%23"),
        ("nats://user:secret@", "has no host"),
        ("nats://secret@[::1", "stands in brackets"),
        ("nats://secret@host:4222/path", "NATS server host must end after the port"),
    ],
)
def test_a_wrong_address_is_told_without_its_credentials(address: str, said: str) -> None:
    with pytest.raises(ServerAddressInvalid) as raised:
        parse_server(address)

    sentence = str(raised.value)
    assert said in sentence
    assert not {"secret", "sec", "ret"} & set(sentence.replace(":", " ").replace("/", " ").split())
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_a_right_address_is_taken_apart() -> None:
    server = parse_server("tls://us%2Fer:w%40rd@[::1]:4443")

    assert (server.host, server.port, server.tls) == ("::1", 4443, True)
    assert server.credentials() == {"user": "us/er", "pass": "w@rd"}
    assert parse_server("host").port == 4222
