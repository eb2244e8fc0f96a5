"""The body type of each kind of journal entry, and a check of a body against its type.

A recorded entry's body is `{"request_digest", "answer"}`, without `request_digest` if kind and key state the question.
The type listed here is the type of the answer. For speed the journal does not check the bodies that it writes; tests
and the simulator call `body_fault` on every entry instead.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from contextos.contracts.acts import ListedPerson, RecordedAct, UsedDirectory
from contextos.contracts.encoding.jcs import is_canonical
from contextos.contracts.entries import shared
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.envelopes.artifacts import Artifact, ExtensionManifest, NewAssertion
from contextos.contracts.envelopes.memory import MemoryReview
from contextos.contracts.journal import CONTROL, DIRECTORY_USED, INDEX, PERSON_LISTED

INDEX_BODIES: Final[dict[str, Any]] = {
    "run.indexed": shared.IndexedRun,
    "run.dispatched": shared.DispatchedRun,
    "run.waiting": shared.WaitingRun,
    **dict.fromkeys(("approval.answered", "slot.answered", "effect.settled"), shared.AnsweredRun),
    "run.closed": shared.ClosedRun,
    "run.reopened": shared.ReopenedLine,
}
"""The type of the body for each kind of the `index` stream."""

ACT_ARGUMENTS: Final[dict[str, Any]] = {
    "store.restored": shared.RestoredStore,
    "run.cancelled": shared.CancelledRun,
    "approval.reasked": shared.ReaskedQuestion,
    "run.retried": shared.RetriedRun,
    "capability.released": shared.ReleasedCapability,
    "model.checked": shared.CheckedModelProfile,
    "run.reopened": shared.ReopenedByOperator,
    "decision.resolved": shared.ResolvedDecision,
    "decision.closed": shared.ClosedDecision,
    "entry.erased": shared.ErasedEntry,
    "runs.exported": shared.ExportedRuns,
    "graph.withdrawn": shared.WithdrawnFact,
    "graph.written": shared.WrittenFacts,
    "memory.reviewed": MemoryReview,
    "artifact.published": shared.PublishedArtifact,
    "artifact.withdrawn": shared.WithdrawnArtifact,
    "policies.activated": shared.ActivatedPolicies,
    "packs.pinned": shared.PinnedPacks,
    "packs.withdrawn": shared.PinnedPacks,
    "key.rotated": shared.RotatedKey,
    "slots.extension_registered": ExtensionManifest,
    "slots.artifact_added": Artifact,
    "slots.artifact_revised": shared.RevisedArtifact,
    "slots.artifact_classified": NewAssertion,
    "slots.assertion_archived": shared.ArchivedAssertion,
    "slots.artifact_deleted": shared.DeletedArtifact,
}
"""The type of the arguments of each kind of operator act."""

LISTED_BODIES: Final[dict[str, Any]] = {PERSON_LISTED: ListedPerson, DIRECTORY_USED: UsedDirectory}
"""The type of the body for each kind of `control` by which the runtime states, sealed, data of the directory."""

CONTROL_BODIES: Final[dict[str, Any]] = {
    "effect.settled": shared.SettledEffect,
    "witness.begun": shared.BegunWitness,
    "clock.went_back": shared.SteppedClock,
    **LISTED_BODIES,
    **dict.fromkeys(ACT_ARGUMENTS, RecordedAct),
}
"""The type of the body for each kind of the `control` stream."""


_SHARED_BODIES: Final = {INDEX: INDEX_BODIES, CONTROL: CONTROL_BODIES}


def body_fault(stream: str, kind: str, raw: bytes) -> str | None:
    """Return what is wrong with the JSON body `raw` of an entry of this stream and kind, or None if it
    fits its type.
    """
    types = _SHARED_BODIES.get(stream)
    row = KINDS.get(kind) if types is None else None
    if kind not in (KINDS if types is None else types):
        return f"`{kind}` is not a kind of the stream `{stream}`"
    try:
        body = orjson.loads(raw)
        if row and row.appended and not is_canonical(raw):
            return "it is not canonical JSON"
        if row and row.recorded:
            if not isinstance(body, dict) or not {"answer"} <= body.keys() <= {"request_digest", "answer"}:
                return "it is not an `answer`, with or without a `request_digest`"
            body = body["answer"]
        _type_adapter(stream if types is not None else "", kind).validate_python(body)
        if types is CONTROL_BODIES and kind in ACT_ARGUMENTS:
            _type_adapter(_ARGUMENTS, kind).validate_python(body["act"]["arguments"])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}"
    except orjson.JSONDecodeError as error:
        return f"it is no JSON: {error}"
    return None


_ARGUMENTS: Final = "arguments"


@cache
def _type_adapter(stream: str, kind: str) -> TypeAdapter[Any]:
    if not stream:
        return TypeAdapter(KINDS[kind].body)
    return TypeAdapter((ACT_ARGUMENTS if stream == _ARGUMENTS else _SHARED_BODIES[stream])[kind])
