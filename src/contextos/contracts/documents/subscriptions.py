"""Documents about subscriptions to the events of a tenant: how far each is, and which process delivers it."""

from __future__ import annotations

from typing import Final

import orjson

from contextos.contracts.documents.collection import Collection, strict_decoder
from contextos.contracts.model import final_fields


@final_fields
class HeldRun:
    """A run whose events from the number `seq` on wait, because its handler failed `failures` times in a row. They are
    tried again at `retry_at_us` (Unix microseconds).
    """

    run: str
    seq: int
    failures: int
    retry_at_us: int


@final_fields
class Subscription:
    """A subscription to `events`. Everything up to the event with `cursor` ("": none) is delivered, except what `held`
    names. The process `owner` delivers until `until_us` (Unix microseconds; 0: no process does).
    """

    events: tuple[str, ...]
    cursor: str
    owner: str
    until_us: int
    held: tuple[HeldRun, ...] = ()


SUBSCRIPTIONS: Final[Collection[Subscription]] = Collection("subscriptions", orjson.dumps, strict_decoder(Subscription))
"""By the name of the subscriber."""
