"""Verify the chains and signatures of the caller's tenant, or of a range of its runs, as `contextos verify` does."""

from __future__ import annotations

import logging
from typing import Annotated, Final

from fastapi import APIRouter

from contextos.audit.verify import RunNumbers, Verification, VerifiedStream
from contextos.contracts.journal import CONTROL, INDEX
from contextos.contracts.model import Model, Positive
from contextos.errors import ChainBroken, Integrity, InvalidEnvelope, NotFound, Problem
from contextos.server.access import RolesHere, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.operate.work import Work, WorkHere, WorkTime
from contextos.service.operations.operation import READER_ROLES
from contextos.telemetry.logs import error_fields
from contextos.workspace import App
from contextos.workspace.verification import Compared, verify_stored

_LOG: Final = logging.getLogger(__name__)

verification_routes: Final = APIRouter(tags=["audit"])


MAX_LISTED_STREAMS: Final = 1000
"""How many streams an answer lists. The others are only counted."""


class VerifiedRange(Model):
    """The range of runs to verify. The number of a run is that of its first line in the index.

    `first` and `last` are included. Without `last` the range has all later runs, and what does not belong to a run.
    Adjacent ranges from 1 on, of which the last has no end, are a whole verification.
    """

    first: Positive = 1
    last: Positive | None = None


class VerifiedDocument(Model):
    """A journal stream that verified: its number of entries, the hash of the last one, and the numbers of the entries
    whose bodies were erased by a signed act. `ended` says whether the run has ended.
    """

    stream: str
    entries: int
    head: str
    erased: list[int]
    ended: bool


class RestoredDocument(Model):
    """What a restore from a backup left of a stream: `gone` entries after entry `kept` are no longer there."""

    stream: str
    kept: int
    gone: int
    at_us: int


class WitnessDocument(Model):
    """The comparison of `index` and `control` with the witness. Without a witness nobody can prove that they are uncut.

    `witnessed` has, by stream, the last witnessed entry. `earlier_witnesses` counts former witnesses, with which only
    the command line compares. `restored` lists the restores from a backup.
    """

    has_witness: bool
    witnessed: dict[str, int]
    earlier_witnesses: int
    restored: list[RestoredDocument]


class VerificationDocument(Model):
    """The result of a verification. `fault` names the first thing that does not verify; null if everything verifies.

    `streams` and `entries` count what was verified. `verified` lists the first 1,000 streams, and `index` and
    `control`. `compared` is null for a range with an end, and where something does not verify.
    """

    first: int
    last: int | None
    fault: str | None
    streams: int
    entries: int
    verified: list[VerifiedDocument]
    compared: WitnessDocument | None


RangeBody = Annotated[VerifiedRange, json_of(VerifiedRange)]


@verification_routes.post("/verifications", response_model_exclude_unset=True, openapi_extra=body_of(VerifiedRange))
async def post_verification(
    app: AppHere, caller: CallerHere, roles: RolesHere, work: WorkHere, asked: RangeBody
) -> VerificationDocument:
    """Verify the tenant of the caller, who is an auditor or an operator. Nothing is recorded."""
    require_role(roles, *READER_ROLES)
    return await verify_range(app, caller.tenant_id, work, asked)


async def verify_range(app: App, tenant_id: str, work: Work, asked: VerifiedRange) -> VerificationDocument:
    """Verify a range of the runs of a tenant. Raises `InvalidEnvelope` for an empty range, and as `Work.do`."""
    if asked.last is not None and asked.last < asked.first:
        raise InvalidEnvelope(Problem("/last", "no_range", "the range ends before it begins", "name a later run"))

    async def job(time: WorkTime) -> VerificationDocument:
        streams_found: list[VerifiedDocument] = []
        streams = entries = 0

        def count(stream: VerifiedStream) -> None:
            nonlocal streams, entries
            time.check()
            streams, entries = streams + 1, entries + stream.entries
            if len(streams_found) < MAX_LISTED_STREAMS or stream.stream in (INDEX, CONTROL):
                streams_found.append(_stream_document(stream))

        numbers = RunNumbers(asked.first, asked.last)
        verification = Verification(app.stores.tenant(tenant_id), tenant_id, app.keys, numbers=numbers)
        compared, fault = None, None
        try:
            compared = await verify_stored(app, tenant_id, verification, count, whole=asked.last is None)
        except NotFound:
            # Nothing of the tenant is stored, so there is no fault.
            pass
        except ChainBroken as broken:
            fault = str(broken)
        except Integrity as error:
            # The texts of other faults name files and addresses of the machine, so only the log has them.
            _LOG.warning("a verification failed", extra=error_fields(error))
            fault = "the store or the witness is not as it was left; the log of the server has the reason"
        witness = None if compared is None else _witness_document(compared)
        return VerificationDocument(
            first=asked.first,
            last=asked.last,
            fault=fault,
            streams=streams,
            entries=entries,
            verified=streams_found,
            compared=witness,
        )

    return await work.do(tenant_id, job)


def _stream_document(stream: VerifiedStream) -> VerifiedDocument:
    return VerifiedDocument(
        stream=stream.stream, entries=stream.entries, head=stream.head, erased=list(stream.erased), ended=stream.ended
    )


def _witness_document(compared: Compared) -> WitnessDocument:
    names = RestoredDocument.model_fields
    restored = [RestoredDocument(**{name: getattr(past, name) for name in names}) for past in compared.past]
    # A tenant does not need the place of the witness, which can be a path of this machine.
    return WitnessDocument(
        has_witness=compared.witness is not None,
        witnessed=compared.lengths,
        earlier_witnesses=len(compared.earlier),
        restored=restored,
    )
