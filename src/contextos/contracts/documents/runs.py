"""Documents about runs: who drives one, which request made it, whether it is to stop, and whether it failed for good.

All are keyed by the run id, but for `requests`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from contextos.contracts.documents.collection import Collection, strict_decoder


@dataclass(frozen=True, slots=True)
class Lease:
    """Who drives a run, until when (Unix microseconds, 0: nobody). The document's version is the fencing token.

    The driver of a `long_running` run also states when it wrote the lease (`at_us`) and until when it can be silent
    before it is taken for dead (`silent_until_us`). Leases of older versions have the latter without the former.
    """

    owner: str
    until_us: int
    at_us: int | None = None
    silent_until_us: int | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life of the driver `owner`, given at `at_us`; it counts until `until_us` (both Unix microseconds)."""

    owner: str
    at_us: int
    until_us: int


@dataclass(frozen=True, slots=True)
class RequestClaim:
    """The run that a request id made, and the fingerprint of the request's body."""

    run_id: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Who asked a run to stop, and why."""

    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetterDocument:
    """Why a run failed for good, when (Unix microseconds) and how often by now.

    It counts while `rests` is true and the run's journal has the `entries` that it had then, and no more.
    """

    code: str
    detail: str
    failed_at_us: int
    rests: bool
    entries: int
    failures: int


def _lease(lease: Lease) -> bytes:
    body: dict[str, Any] = {"owner": lease.owner, "until_us": lease.until_us}
    if lease.at_us is not None:
        body["at_us"] = lease.at_us
    if lease.silent_until_us is not None:
        body["silent_until_us"] = lease.silent_until_us
    return orjson.dumps(body)


def _heartbeat(beat: Heartbeat) -> bytes:
    return orjson.dumps({"owner": beat.owner, "at_us": beat.at_us, "until_us": beat.until_us})


def _request(claim: RequestClaim) -> bytes:
    return orjson.dumps({"run_id": claim.run_id, "fingerprint": claim.fingerprint})


LEASES: Final = Collection("leases", _lease, strict_decoder(Lease))
"""By run id."""

HEARTBEATS: Final = Collection("heartbeats", _heartbeat, strict_decoder(Heartbeat))
"""By run id."""

REQUESTS: Final = Collection("requests", _request, strict_decoder(RequestClaim))
"""By request id."""

CANCELS: Final[Collection[CancelRequest]] = Collection("cancels", orjson.dumps, strict_decoder(CancelRequest))
"""By run id."""

DEAD_LETTERS: Final[Collection[DeadLetterDocument]] = Collection(
    "dead_letters", orjson.dumps, strict_decoder(DeadLetterDocument)
)
"""By run id."""
