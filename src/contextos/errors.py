"""The exceptions that ContextOS raises on purpose.

A verdict (deny, refuse, escalate, replan) is a value and never an exception. An impossible state is an assertion. Every
other failure is a class of this tree. The tree names the packages that raise it, the remedy, and the exit code of the
command line::

    ContextOSError
    +-- InvalidInput            any boundary; nothing was stored: fix the input               exit 2
    |   +-- MalformedJson       contracts.encoding; not I-JSON within the limits              exit 2
    |   +-- InvalidEnvelope     contracts.encoding; JSON that does not fit its contract       exit 2
    |   +-- ConflictingRequest  deployment.deployment; a `request_id` with another body       exit 2
    |   +-- InvalidSettings     settings, workspace; a deployment cannot start with the settings exit 2
    |   +-- InvalidTool         packs.tools; nothing safe can be derived from a function      exit 2
    |   +-- InvalidArtifact     control; lint refuses the pack, bundle or catalog             exit 2
    |   +-- IncoherentSelection store; the ids of a pin do not belong together: resolve again exit 2
    |   +-- RepeatedAct         store; the key of a selection was used for other refs         exit 2
    +-- NotFound                deployment, store; this tenant has no such thing              exit 2
    +-- ApprovalRefused         deployment.operator; the answer of this person is not valid   exit 1
    +-- Integrity               stop, keep the evidence, inform an operator                   exit 3
    |   +-- ReplayMismatch      trust.journal.ledger, audit; names the first differing entry  exit 3
    |   +-- ChainBroken         trust.journal, audit; names the entry                         exit 3
    |   +-- SignatureInvalid    trust.seal; the signature is wrong, or the key is unknown     exit 3
    |   +-- UnknownSemantics    trust.journal.chain; another runtime wrote the run            exit 3
    +-- Conflict                store; a compare-and-set lost: advance the run again          exit 4
    |   +-- Untimely            store; a write before or after the time that it states        exit 4
    +-- Unavailable             adapters, store; not done, or unknown: read, then try again   exit 4
    |   +-- Overloaded          workspace.engine, store, adapters; no capacity: try again later exit 4
    |   +-- ClockOff            deployment.driver; set the clock of this machine              exit 4
    |   +-- CircuitOpen         action.breaker; not sent, because recent calls failed         exit 4
    |   +-- StoreRestored       store; the database was restored and nobody recorded that     exit 3
    |   +-- OtherEnvironment    control, trust; of another environment than is served     exit 2
    +-- LostReply               adapters; sent, and the outcome is unknown                    exit 4
    +-- RequestRefused          client; a server refused it for a reason of no other class    exit 2
    +-- UnfitAnswer             client; a server's answer is not what its contract says       exit 4

A message is lower case, quotes input in backticks, has no full stop and names the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of an input: its place (`pointer`, a JSON Pointer), a stable `code`, a sentence and what to do."""

    pointer: str
    code: str
    detail: str
    remedy: str = ""

    def __str__(self) -> str:
        place = f"at `{self.pointer}`: " if self.pointer else ""
        return f"{place}{self.detail}" + (f"; {self.remedy}" if self.remedy else "")


class ContextOSError(Exception):
    """Base of every error that ContextOS raises on purpose.

    `code` is a stable name of the class, and `exit_code` the exit code of the command line.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 4

    def __reduce__(self) -> tuple[Any, ...]:
        # `Exception.__reduce__` makes the error again from its sentence alone, and another process could not read it.
        return _unpickle, (type(self), *self.args), self.__dict__


class InvalidInput(ContextOSError):
    """An input was refused at a boundary and nothing was stored.

    `problems` has at least one `Problem`.
    """

    code = "invalid_input"
    exit_code = 2

    def __init__(self, *problems: Problem) -> None:
        assert problems, "an invalid input names at least one problem"
        self.problems = problems
        suffix = f" (+{len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{suffix}")
        for problem in problems[1:]:
            self.add_note(str(problem))  # Python prints them below the error

    def in_file(self, name: str, setting: str = "") -> tuple[Problem, ...]:
        """Return the problems with the name of their file. With `setting`, a pointer, each problem is at this setting,
        and its detail names its place in the file.
        """
        problems = []
        for problem in self.problems:
            place = f" at `{problem.pointer}`" if setting and problem.pointer else ""
            detail = problem.detail if f"`{name}`" in problem.detail else f"`{name}`{place}: {problem.detail}"
            problems.append(replace(problem, pointer=setting or problem.pointer, detail=detail))
        return tuple(problems)


class MalformedJson(InvalidInput):
    """The bytes are not I-JSON within the limits of `contracts.encoding.codec`."""

    code = "malformed_json"


class InvalidEnvelope(InvalidInput):
    """The JSON does not fit its contract."""

    code = "invalid_envelope"


class ConflictingRequest(InvalidInput):
    """A `request_id` was used before with another body."""

    code = "conflicting_request"


class InvalidSettings(InvalidInput):
    """The settings are invalid; nothing was started."""

    code = "invalid_settings"


class InvalidTool(InvalidInput):
    """A function cannot be a tool as it is written; each problem says what to write."""

    code = "invalid_tool"


class InvalidArtifact(InvalidInput):
    """A governed artifact fails lint; it was not published or loaded."""

    code = "invalid_artifact"


class IncoherentSelection(InvalidInput):
    """The ids of an artifact reference do not belong together, or the artifact cannot be selected any more.
    Nothing of the selection was recorded.
    """

    code = "incoherent_selection"


class RepeatedAct(InvalidInput):
    """The `act_key` of a selection was used before for a different selection."""

    code = "repeated_act"


class NotFound(ContextOSError):
    """The tenant has no object of that name; the error is the same if another tenant has one."""

    code = "not_found"
    exit_code = 2


class ApprovalRefused(ContextOSError):
    """An answer to an approval is not valid; `reason` is a stable code."""

    code = "approval_refused"
    exit_code = 1

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


class Integrity(ContextOSError):
    """Stored and derived facts disagree: stop, keep the evidence, inform an operator."""

    code = "integrity"
    exit_code = 3


class ReplayMismatch(Integrity):
    """A replay derived something other than the journal holds; `seq` is the first differing entry."""

    code = "replay_mismatch"

    def __init__(self, seq: int, kind: str, detail: str, *, run_id: str = "") -> None:
        self.seq, self.kind, self.detail = seq, kind, detail
        super().__init__(f"{f'`{run_id}` ' if run_id else ''}entry {seq} (`{kind}`): {detail}")


class ChainBroken(Integrity):
    """A journal fails verification; `stream` and `seq` name the entry."""

    code = "chain_broken"

    def __init__(self, stream: str, seq: int, detail: str) -> None:
        self.stream, self.seq, self.detail = stream, seq, detail
        super().__init__(f"`{stream}` entry {seq}: {detail}")


class SignatureInvalid(Integrity):
    """A signature does not verify under any key that is trusted for its purpose.

    For a token, `part` names the claim or header that is why, with what is `expected` and what was `found`. They are
    for the log of the server: the message quotes nothing of a token.
    """

    code = "signature_invalid"

    def __init__(self, detail: str, *, part: str = "", expected: Any = None, found: Any = None) -> None:
        self.part, self.expected, self.found = part, expected, found
        super().__init__(detail)


class UnknownSemantics(Integrity):
    """A run was recorded under a version of the rules (semantics) that this runtime does not know."""

    code = "unknown_semantics"


class Conflict(ContextOSError):
    """Another process changed the same data first; nothing was written. `what` names the document, stream or key."""

    code = "conflict"

    def __init__(self, what: str, remedy: str = "advance the run again") -> None:
        self.what = what
        super().__init__(f"`{what}` changed meanwhile; {remedy}")


class Untimely(Conflict):
    """A write came before or after the time that it states; nothing was written. `store_us` is the store's clock in
    Unix microseconds.
    """

    code = "untimely"

    def __init__(self, what: str, store_us: int) -> None:
        self.store_us = store_us
        super().__init__(what)


class Unavailable(ContextOSError):
    """A dependency did not answer and nothing was lost; try again after `retry_after_ms` milliseconds.

    `remedy` says instead what a person has to do first.
    """

    code = "unavailable"

    def __init__(self, dependency: str, detail: str, *, retry_after_ms: int = 1000, remedy: str = "") -> None:
        self.dependency, self.detail, self.retry_after_ms = dependency, detail, retry_after_ms
        super().__init__(f"`{dependency}` is unavailable: {detail}; {remedy or f'try again in {retry_after_ms} ms'}")


class Overloaded(Unavailable):
    """The process or the tenant is at its limit; nothing was stored; try again after `retry_after_ms` milliseconds."""

    code = "overloaded"


class ClockOff(Unavailable):
    """The clock of this machine is too far from the store's, so it drives no run. `off_us` is how far it is ahead, in
    microseconds.
    """

    code = "clock_off"

    def __init__(self, off_us: int, margin_us: int) -> None:
        self.off_us = off_us
        side = "ahead of" if off_us > 0 else "behind"
        detail = (
            f"the clock of this machine is {abs(off_us) / 1e6:.0f} s {side} the store's, and {margin_us / 1e6:.0f} s"
        )
        super().__init__("clock", f"{detail} are allowed; set it, for example with NTP", retry_after_ms=30_000)


class CircuitOpen(Unavailable):
    """Recent calls of a capability failed, so nothing was sent; try again at `retry_at_us` (Unix microseconds)."""

    code = "circuit_open"

    def __init__(self, capability: str, retry_at_us: int, retry_after_ms: int) -> None:
        self.retry_at_us = retry_at_us
        super().__init__(capability, "its circuit is open and nothing was sent", retry_after_ms=retry_after_ms)


class StoreRestored(Unavailable):
    """The database was restored from a backup; no commit is possible until an operator records the restore."""

    code = "store_restored"
    exit_code = 3

    def __init__(self, detail: str) -> None:
        self.dependency, self.retry_after_ms = "store", 30_000
        ContextOSError.__init__(self, detail)


class OtherEnvironment(Unavailable):
    """A tenant's active set, or a run, is of another environment than this deployment serves, so nothing was decided.
    `what` names the set or the run, and `stored` is its environment.
    """

    code = "other_environment"
    exit_code = 2
    OUTSIDE: ClassVar[str] = (
        "what this is about is of another environment than this server serves, so nothing was decided or recorded; send"
        " it to the server of that environment, or ask the operator, whose log says which one"
    )
    """What a caller of a server reads: it names neither the run nor an environment."""

    def __init__(self, what: str, stored: str, served: str) -> None:
        self.dependency, self.retry_after_ms = "store", 30_000
        detail = f"{what} is of the environment `{stored}`, and this deployment serves `{served}`"
        remedy = f'write `environment = "{stored}"` in the settings, or give this deployment a store of its own'
        remedy += f", and publish the signed files there; where `{stored}` was a mistake, set it, end its pins with"
        ContextOSError.__init__(self, f"{detail}; {remedy} `contextos pack withdraw`, and then set `{served}` again")


class DestinationGone(ContextOSError):
    """A subscriber wants nothing more, and nothing more is sent to it."""

    code = "destination_gone"

    def __init__(self, destination: str) -> None:
        remedy = "if it is there again, write it in the settings under another name"
        super().__init__(f"`{destination}` says that it is gone, so nothing more is sent to it; {remedy}")


class LostReply(ContextOSError):
    """A call was sent and its outcome is unknown. Send a write again only under its idempotency key or after a
    lookup. `accepted`: the system said that it carries the call out, so sending it again shows nothing.
    """

    code = "lost_reply"
    accepted = False


class RequestRefused(ContextOSError):
    """A server refused a request for a reason that no other class has, such as an expired token or a missing role.
    `status` is that of the answer, and `reason` the stable code of its problem document (RFC 9457); `problem_type`,
    `title` and `detail` are the document's own.
    """

    code = "request_refused"
    exit_code = 2

    def __init__(self, status: int, reason: str, problem_type: str, title: str, detail: str) -> None:
        self.status, self.reason = status, reason
        self.problem_type, self.title, self.detail = problem_type, title, detail
        super().__init__(detail)


class UnfitAnswer(ContextOSError):
    """What answered is not what the contract of the API says: a redirect, another media type, a body that is too large
    or does not fit. Whether the request had an effect is unknown.
    """

    code = "unfit_answer"


def _unpickle(kind: type[ContextOSError], *args: object) -> ContextOSError:
    return kind.__new__(kind, *args)
