"""Certificates, authorities and tokens are replaced under load. No client may get an error.

Each round renews the certificate of the client, the certificates of the brokers, the token, and then the
authority, with a time in which both authorities are trusted. After the token and after the authority it
measures how long what was replaced is still accepted.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

import tidelog
from chaos.certificates import Authority
from chaos.harness import Harness
from chaos.scenarios.steps import claim_no_errors, take_gaps
from chaos.trust import LOAD, Trust, tls_in
from tidelog.errors import TidelogError, Unauthenticated, Unavailable

SETTLED_SECONDS: Final = 4.0
"""The load continues for this time after a change: brokers and clients look at files once a second."""

REFUSED_SECONDS_MAX: Final = 2.0
"""Promised by docs/access.md (A3) for each kind of credentials that is replaced here."""

LOOK_SECONDS: Final = 0.05

WAIT_SECONDS_MAX: Final = 20.0


async def act(harness: Harness, rounds: int) -> None:
    trust = harness.trust
    assert trust is not None, "the scenario has TLS"
    await harness.healed("every replica is in sync")
    await asyncio.sleep(SETTLED_SECONDS)
    take_gaps(harness, "calm")
    await asyncio.sleep(SETTLED_SECONDS)
    harness.say(f"longest gaps without any change: {take_gaps(harness, 'calm')}")
    for number in range(rounds):
        say = partial(_say, harness, number)
        trust.renew_client()
        await say("certificate of the client")
        for broker in harness.cluster.brokers:
            trust.renew_broker(broker)
        await say("certificates of the brokers")
        await _replace_token(harness, trust)
        await say("token")
        await _replace_authority(harness, trust)
        await say("authority")
    claim_no_errors(harness)


async def _say(harness: Harness, number: int, what: str) -> None:
    await asyncio.sleep(SETTLED_SECONDS)
    harness.faults[f"replaced: {what}"] += 1
    harness.say(f"round {number + 1}: {what} replaced; longest gaps: {take_gaps(harness, what)}")


async def _replace_token(harness: Harness, trust: Trust) -> None:
    before = trust.keep_copy("load")
    old = await harness.admin.list_tokens(LOAD)
    await trust.renew_token(harness.admin)
    await asyncio.sleep(SETTLED_SECONDS)
    for token in old:
        await harness.admin.delete_token(token.token_id)
    await _refused(harness, "a deleted token", before, token=before / "token")


async def _replace_authority(harness: Harness, trust: Trust) -> None:
    before, old, new = trust.keep_copy("admin"), trust.authority, Authority()
    brokers, both = harness.cluster.brokers, old.pem + new.pem
    for issuer, trusted in ((old, both), (new, both), (new, new.pem)):
        for broker in brokers:
            trust.renew_broker(broker, issuer, trusted)
        for client in ("load", "admin"):
            trust.renew_client(client, issuer, trusted)
        if trusted == both:
            await asyncio.sleep(SETTLED_SECONDS)
    trust.authority = new
    # The client still trusts both: the brokers are those that must refuse.
    (before / "ca.crt").write_bytes(both)
    await _refused(harness, "a certificate of the old authority", before)


async def _refused(harness: Harness, what: str, files: Path, token: Path | None = None) -> None:
    """Measures until a broker refuses these credentials."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while loop.time() - begun < WAIT_SECONDS_MAX:
        client = tidelog.connect(
            harness.cluster.servers[0],
            tls=tls_in(files),
            token_file=token or "",
            connect_timeout_s=2 * LOOK_SECONDS,
        )
        try:
            async with client:
                await client.who_am_i()
        except (Unauthenticated, Unavailable):
            break
        except TidelogError as error:
            harness.claim(False, f"{what} was answered with {type(error).__name__}: {error}")
            break
        await asyncio.sleep(LOOK_SECONDS)
    seconds = loop.time() - begun
    harness.figures.gap(f"{what} is accepted", seconds)
    harness.claim(
        seconds <= REFUSED_SECONDS_MAX,
        f"After {REFUSED_SECONDS_MAX:g} s {what} must be refused; it took {seconds:.2f} s",
    )
