"""The error tree: broken promises only.

A verdict (deny, refuse, escalate, replan) is a value and never an exception; the impossible is an
assert. What is left is here, and each class names the boundary that raises it and what the caller
must do::

    ContextOSError
    +-- InvalidInput            any boundary; nothing was stored; mend the input            exit 2
    |   +-- MalformedJson       contracts.codec; not I-JSON within the limits               exit 2
    |   +-- InvalidEnvelope     contracts.codec; JSON, but not this contract                exit 2
    |   +-- ConflictingRequest  app; a `request_id` was used before with another body       exit 2
    |   +-- InvalidSettings     app; the settings cannot start a runtime                    exit 2
    |   +-- InvalidArtifact     control; a pack, bundle or catalog that lint refuses        exit 2
    |   +-- IncoherentSelection store; a pinned triple is not what it says; resolve again   exit 2
    |   +-- RepeatedAct         store; an act of selection came again with other refs       exit 2
    +-- NotFound                app, store; no such thing in this tenant                    exit 2
    +-- ApprovalRefused         desk; this person's act does not count, and why             exit 1
    +-- Integrity               stop, keep the evidence, tell an operator                   exit 3
    |   +-- ReplayMismatch      trust.ledger; names the first differing step                exit 3
    |   +-- ChainBroken         trust.ledger, trust.heads; names the entry                  exit 3
    |   +-- SignatureInvalid    trust.seal; bytes and signature disagree, or key unknown    exit 3
    |   +-- UnknownSemantics    trust.ledger; written by a runtime that we are not          exit 3
    +-- Conflict                store; a compare-and-set lost; advance the run again        exit 4
    +-- Unavailable             adapters, store; not done, or not known: read, then again   exit 4
    |   +-- Overloaded          engine, store, adapters; no room, nothing stored: later     exit 4
    |   +-- CircuitOpen         action.breaker; not sent, it failed too often just now     exit 4
    |   +-- StoreRestored       store; a database that was restored and nobody said so      exit 3
    +-- LostReply               adapters; sent, and not known whether it happened           exit 4

Messages are lower case, quote the input in backticks, have no full stop and say what to do next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: where (RFC 6901 pointer), what, and the mend."""

    pointer: str
    code: str
    detail: str
    remedy: str = ""

    def __str__(self) -> str:
        where = f"at `{self.pointer}`: " if self.pointer else ""
        return f"{where}{self.detail}" + (f"; {self.remedy}" if self.remedy else "")


class ContextOSError(Exception):
    """Base of every error that ContextOS raises on purpose."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 4


class InvalidInput(ContextOSError):
    """An input was refused at a boundary and nothing was stored."""

    code = "invalid_input"
    exit_code = 2

    def __init__(self, *problems: Problem) -> None:
        assert problems, "an invalid input names at least one problem"
        self.problems = problems
        more = f" (+{len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}")


class MalformedJson(InvalidInput):
    """The bytes are not I-JSON within the limits (contracts.codec)."""

    code = "malformed_json"


class InvalidEnvelope(InvalidInput):
    """The JSON does not fit its contract (contracts.codec)."""

    code = "invalid_envelope"


class ConflictingRequest(InvalidInput):
    """A `request_id` came again with another body."""

    code = "conflicting_request"


class InvalidSettings(InvalidInput):
    """The settings cannot start a runtime; it did not start by half."""

    code = "invalid_settings"


class InvalidArtifact(InvalidInput):
    """A governed artifact fails lint; it was not loaded."""

    code = "invalid_artifact"


class IncoherentSelection(InvalidInput):
    """A ref does not belong together, or is not eligible any more; the whole act was not recorded."""

    code = "incoherent_selection"


class RepeatedAct(InvalidInput):
    """The key of an act of selection was used before for another pick."""

    code = "repeated_act"


class NotFound(ContextOSError):
    """No such thing in this tenant; another tenant's thing answers the same."""

    code = "not_found"
    exit_code = 2


class ApprovalRefused(ContextOSError):
    """An answer to an approval that does not count; `reason` is a stable code."""

    code = "approval_refused"
    exit_code = 1

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


class Integrity(ContextOSError):
    """Stored and derived facts disagree: stop, keep the evidence, tell an operator."""

    code = "integrity"
    exit_code = 3


class ReplayMismatch(Integrity):
    """A replay derived something else than the journal holds; `seq` is the first differing entry."""

    code = "replay_mismatch"

    def __init__(self, seq: int, kind: str, detail: str, *, run_id: str = "") -> None:
        self.seq, self.kind, self.detail = seq, kind, detail
        super().__init__(f"{f'`{run_id}` ' if run_id else ''}entry {seq} (`{kind}`): {detail}")


class ChainBroken(Integrity):
    """A journal fails verification; `seq` names the entry."""

    code = "chain_broken"

    def __init__(self, stream: str, seq: int, detail: str) -> None:
        self.stream, self.seq = stream, seq
        super().__init__(f"`{stream}` entry {seq}: {detail}")


class SignatureInvalid(Integrity):
    """A signature does not verify under a key that may sign this."""

    code = "signature_invalid"


class UnknownSemantics(Integrity):
    """A run was written under semantics that this runtime does not know."""

    code = "unknown_semantics"


class Conflict(ContextOSError):
    """A compare-and-set was lost; `what` names the document, or the stream whose sequence moved."""

    code = "conflict"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"`{what}` changed meanwhile; advance the run again")


class Unavailable(ContextOSError):
    """A dependency did not answer; nothing was lost; try again after `retry_after_ms`."""

    code = "unavailable"

    def __init__(self, dependency: str, detail: str, *, retry_after_ms: int = 1000) -> None:
        self.dependency, self.retry_after_ms = dependency, retry_after_ms
        super().__init__(f"`{dependency}` is unavailable: {detail}; try again in {retry_after_ms} ms")


class Overloaded(Unavailable):
    """There is no room for more, in all or for this tenant; nothing was stored; try again after `retry_after_ms`."""

    code = "overloaded"


class CircuitOpen(Unavailable):
    """A capability failed too often just now; nothing was sent; it may be tried again at `retry_at_us`."""

    code = "circuit_open"

    def __init__(self, capability: str, retry_at_us: int, retry_after_ms: int) -> None:
        self.retry_at_us = retry_at_us
        super().__init__(capability, "its circuit is open and nothing was sent", retry_after_ms=retry_after_ms)


class StoreRestored(Unavailable):
    """The database is not where it was: nothing is committed to it until an operator says that it was restored."""

    code = "store_restored"
    exit_code = 3

    def __init__(self, detail: str) -> None:
        self.dependency, self.retry_after_ms = "store", 30_000
        ContextOSError.__init__(self, detail)


class LostReply(ContextOSError):
    """A call was sent and it is not known whether it happened; a blind retry of an effect is forbidden."""

    code = "lost_reply"
