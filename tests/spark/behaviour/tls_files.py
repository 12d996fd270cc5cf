"""The table of behaviour: the options of TLS and tokens, which reads and writes share."""

from __future__ import annotations

from spark.behaviour.case import Bad, Case, Good, Table, Written, at
from spark.brokers import FILES, ONE_WITH_TLS
from tidelog_spark.servers import SERVERS, TLS, TLS_AUTHORITIES, TLS_CERTIFICATE, TLS_KEY, TOKEN_FILE

GIVEN = {
    SERVERS: ONE_WITH_TLS,
    TLS: "true",
    TLS_AUTHORITIES: f"{FILES}/ca.crt",
    TLS_CERTIFICATE: f"{FILES}/tls.crt",
    TLS_KEY: f"{FILES}/tls.key",
    TOKEN_FILE: f"{FILES}/token",
}
_ALL = [*at(0, *range(10)), *at(1, *range(4))]
_IMPLIED = {name: value for name, value in GIVEN.items() if name != TLS}
_TOGETHER = f"{TLS_CERTIFICATE} and {TLS_KEY} belong together; give both, or neither"

_BAD = {
    TLS: [
        Bad({TLS: "yes"}, f"{TLS} is 'yes'; it must be 'true' or 'false'"),
        Bad({**GIVEN, TLS: "false"}, f"{TLS} is false, but {TLS_AUTHORITIES} is given; remove one of them"),
    ],
    TLS_AUTHORITIES: [
        Bad({**GIVEN, TLS_AUTHORITIES: "/none.crt"},
            f"{TLS}: the TLS file /none.crt cannot be read: No such file or directory"),
    ],
    TLS_CERTIFICATE: [Bad({TLS_CERTIFICATE: "/a.crt"}, _TOGETHER)],
    TLS_KEY: [Bad({TLS_KEY: "/a.key"}, _TOGETHER)],
    TOKEN_FILE: [
        Bad({TOKEN_FILE: "/none"},
            f"{TOKEN_FILE}: the token file /none cannot be read: No such file or directory"),
        Bad({TOKEN_FILE: "/dev/null"},
            f"{TOKEN_FILE}: the token in /dev/null is not a token; give printable text without spaces"),
    ],
}  # fmt: skip

TLS_OPTIONS: Table = {
    name: Case([Good(_IMPLIED if name == TLS_KEY else GIVEN, _ALL), Good(GIVEN, _ALL, batches=(14,))], bad)
    for name, bad in _BAD.items()
}

TLS_OPTIONS_OF_WRITES: Table = {name: Case([Written(GIVEN)], bad) for name, bad in _BAD.items()}
