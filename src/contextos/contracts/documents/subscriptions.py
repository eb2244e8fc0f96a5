"""Documents about subscriptions to the events of a tenant: how far each is, and which process delivers it."""

from __future__ import annotations

from typing import Final

from contextos.contracts.documents.collection import stored
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
    """A subscription to `events`. Every event up to the one with `cursor` ("": none) is delivered, except the events of
    the runs in `held`. The process `owner` delivers until `until_us` (Unix microseconds; 0: no process does). `ended`
    is why nothing is delivered any more, or empty.
    """

    events: tuple[str, ...]
    cursor: str
    owner: str
    until_us: int
    held: tuple[HeldRun, ...] = ()
    ended: str = ""


SUBSCRIPTIONS: Final = stored("subscriptions", Subscription)
"""By the name of the subscriber."""


@final_fields
class Reminder:
    """A reminder of a question that waits in the run `run`: it was sent (`retry_at_us` is 0), or could not be sent
    `failures` times in a row and is tried again at `retry_at_us` (Unix microseconds).
    """

    run: str
    failures: int
    retry_at_us: int


@final_fields
class UndeliveredEvent:
    """An event of the run `run` that a subscriber did not take in `failures` attempts, so that it was given up at
    `at_us` (Unix microseconds). `sequence` is the number of the event, and `detail` the error of the last attempt.
    """

    run: str
    sequence: int
    event: str
    failures: int
    at_us: int
    detail: str


def event_key(subscriber: str, sequence: int, suffix: str = "") -> str:
    """Return the key of a document about one event and one subscriber."""
    return f"{subscriber}/{sequence:016d}{suffix}"


REMINDERS: Final = stored("reminders", Reminder)
"""By `event_key` of the event with which the run began to wait."""

UNDELIVERED: Final = stored("undelivered_events", UndeliveredEvent)
"""By `event_key`."""
