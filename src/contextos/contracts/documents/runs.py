"""Documents about runs: leases, heartbeats, request claims, cancellation requests and dead letters.

The key is the run id, except in `requests`.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from contextos.contracts.documents.collection import stored
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.model import final_fields


@final_fields
class Lease:
    """The lease on a run: the driver `owner` is the only process that is allowed to append to the run.

    The lease expires at `until_us` (0: the run has no driver). The document's version is the fencing token, by which
    the store refuses an earlier driver. `at_us` is when the lease was written. A driver of a `long_running` run also
    states from when on it counts as dead without a heartbeat (`silent_until_us`). Times are Unix microseconds. `deaths`
    counts the drivers before this one that died in a row without a new entry.
    """

    owner: str
    until_us: int
    at_us: int = 0
    silent_until_us: int | None = None
    deaths: int = 0


@final_fields
class Heartbeat:
    """A sign of life from the driver `owner`, written at `at_us`. It expires at `until_us` (both in Unix
    microseconds).
    """

    owner: str
    at_us: int
    until_us: int


@final_fields
class RequestClaim:
    """The run that was created for a `request_id`, and a digest of the request's body."""

    run_id: str
    fingerprint: str


@final_fields
class HopUse:
    """The request for which the claim of a partner was used, and the digest of that claim."""

    request_id: str
    claim_hash: str


@final_fields
class CancelRequest:
    """A request to cancel a run: the principal `by` and the reason."""

    by: str
    reason: str


@final_fields
class DeadLetterDocument:
    """A dead letter: a run that failed so often that it is no longer driven. It has error code and detail, the time of
    the last failure (Unix microseconds) and the number of failures so far.

    It is in force while `rests` is true and the run's journal has exactly `entries` entries.
    """

    code: str
    detail: str
    failed_at_us: int
    rests: bool
    entries: int
    failures: int


@final_fields
class BlockedRun:
    """The operation (`operation_key`) of another run that a run waited for when it was driven last. It can be settled
    since.
    """

    operation: str


def _encode_lease(lease: Lease) -> bytes:
    body: dict[str, Any] = {"owner": lease.owner, "until_us": lease.until_us}
    if lease.at_us:
        body["at_us"] = lease.at_us
    if lease.silent_until_us is not None:
        body["silent_until_us"] = lease.silent_until_us
    if lease.deaths:
        body["deaths"] = lease.deaths
    return orjson.dumps(body)


LEASES: Final = stored("leases", Lease, _encode_lease)
"""By run id."""

HEARTBEATS: Final = stored("heartbeats", Heartbeat)
"""By run id."""

REQUESTS: Final = stored("requests", RequestClaim)
"""By `request_key`."""


HOP_CLAIMS: Final = stored("hop_claims", HopUse)
"""By `hop_key`."""


def hop_key(issuer: str, jti: str) -> str:
    """Return the key of the use of a partner's claim: the digest of its issuer and its id."""
    return content_address({"iss": issuer, "jti": jti})


def request_key(request_id: str, correction: int) -> str:
    """Return the key of the claim of a request: the first with this id (`correction` 1), or a later correction of it.

    >>> request_key("req_1", 1), request_key("req_1", 2)
    ('req_1', 'req_1#2')
    """
    return request_id if correction == 1 else f"{request_id}#{correction}"


CANCELS: Final = stored("cancels", CancelRequest)
"""By run id."""

DEAD_LETTERS: Final = stored("dead_letters", DeadLetterDocument)
"""By run id."""

BLOCKED_RUNS: Final = stored("blocked_runs", BlockedRun)
"""By run id."""

BLOCKED_BY: Final = stored("blocked_by", BlockedRun)
"""By operation and run id, `OPERATION/RUN`: so a settled operation finds the runs that waited for it."""
