"""One call of a tool, as the executor, the gateway and the ports of the gateway pass it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.encoding.redacted import without_secret_arguments
from contextos.contracts.envelopes.evidence import TracedArgument
from contextos.contracts.envelopes.plan import DecisionSpec, PlanStep
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.tool import ToolCallEnvelope
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Write
from contextos.contracts.model import final_fields
from contextos.contracts.scope import Capability, Fact, Redeemed


@final_fields
class CallTime:
    """How long one attempt of a call can take: exactly (`limit_us`), and in whole milliseconds for its adapter.

    `cut_by` states the limit of the run if that leaves less time than the capability declares.
    """

    limit_us: int
    timeout_ms: int
    cut_by: str | None = None


NO_TIME: Final = CallTime(0, 0)
_NOTHING: Final[Mapping[str, Any]] = {}


class ToolCall:
    """One call, from the step of a plan to its result. Each stage fills in its part.

    The executor: `key` is `<plan revision>/<step id>`, `provenance` maps each argument to `literal` or
    `<source>:<pointer>`, and `known` is all the evidence that the run has so far, the oldest first. `raw` is the
    canonical JSON of the arguments and `args_digest` its digest. `open_args` has the arguments that are not secret;
    `has_marks` says that some are secret.

    The guards (the checks of the gateway): `evidence` is the known evidence that is about these arguments, by name, and
    `frozen` the evidence in use. `operation_key` identifies the operation; `idempotency_key` has the same value once
    the operation was looked up. `traced` says where each argument was found; it is empty if the run has seen no
    untrusted content (`saw_untrusted`). `operation` is the recorded answer of `look_up_operation`. `preconditions` are
    checks that must still hold in the commit that claims the operation for this run. `counts` builds the writes that
    count the call in the history, and `kept` the write that keeps, for later runs, what it wrote of untrusted content.

    The delivery: `mode` is `send`, or `reconcile`: find out what an earlier send did. `first_us` is when the call was
    first sent, and `first_clock_us` that time by the clock; `claimed` is the write that reserves its idempotency key,
    and `checks` are the checks of the next attempt. `recovered`: another process recorded the current attempt.
    `grouped`: it is sent together with other calls. `time`: how long it can take. `token`: its secret credential;
    `lacking`: why it has none; `retry_at_us`: when an open circuit admits the next call, if that is why.
    `sent_until_us` is `not_after_us` of the last attempt that can have been sent: a look-up sends nothing. `running` is
    the name under which the other system accepted and still executes the call: it is looked up, and not sent again.
    """

    occurrence: int = 0
    tool_call_id: str = ""
    capability: Capability
    evidence: Mapping[str, Fact]
    decision: PolicyDecision | None = None
    operation_key: str = ""
    idempotency_key: str | None = None
    operation: Mapping[str, Any] = _NOTHING
    frozen: tuple[Fact, ...] = ()
    approval: Redeemed | None = None
    preconditions: tuple[Write, ...] = ()
    counts: Callable[[], tuple[Write, ...]] = tuple
    history: Mapping[str, Any] = _NOTHING
    traced: Mapping[str, TracedArgument] = _NOTHING
    saw_untrusted: bool = False
    kept: Callable[[], Write] | None = None
    envelope: ToolCallEnvelope

    mode: str = "send"
    first_us: int = 0
    first_clock_us: int = 0
    attempt: int = 0
    not_after_us: int = 0
    sent_until_us: int = 0
    time: CallTime = NO_TIME
    on_tape: bool = False
    recovered: bool = False
    claimed: Write | None = None
    grouped: bool = False
    checks: tuple[Write, ...] = ()
    token: str = ""
    lacking: Failure | None = None
    retry_at_us: int = 0
    running: str | None = None

    def __init__(
        self,
        key: str,
        step: PlanStep,
        args: Mapping[str, Any],
        provenance: Mapping[str, str],
        known: tuple[Fact, ...],
        spec: tuple[str, DecisionSpec] | None = None,
    ) -> None:
        # A field that no stage has filled in yet is read from the class, so that a call is made at little cost.
        self.key, self.step, self.args, self.provenance, self.known = key, step, args, provenance, known
        self.raw = canonical(args)
        self.args_digest, self.open_args = digest(self.raw), without_secret_arguments(args)
        self.has_marks = len(self.open_args) < len(args)
        self.spec_key = spec[0] if spec else None
        self.required_evidence = tuple(spec[1].required_evidence) if spec else ()

    @property
    def writes(self) -> bool:
        return self.capability.definition.kind == "write"

    @property
    def untrusted_destinations(self) -> dict[str, TracedArgument]:
        """Return the arguments that say where something goes and whose value no trusted source has.

        A value that was found nowhere (the agent made it) counts if the tool states its destinations, or once the run
        has seen untrusted content, which can have given the agent the value in any disguise.
        """
        if not self.traced:
            return {}
        unknown_counts = self.capability.definition.destinations is not None or self.saw_untrusted
        levels = ("untrusted", "unknown") if unknown_counts else ("untrusted",)
        arguments = {name: self.traced[name] for name in sorted(self.capability.destinations) if name in self.traced}
        return {name: argument for name, argument in arguments.items() if argument.integrity in levels}

    @property
    def redemption(self) -> tuple[Write, ...]:
        """Return the write that consumes the approval, if any. The commit fails if it was consumed already."""
        return (self.approval.consume,) if self.approval else ()

    @property
    def counted(self) -> tuple[Write, ...]:
        """Return the signed writes of `counts` and `kept`. A replay does not make them."""
        return (*self.counts(), *((self.kept(),) if self.kept else ()))

    @property
    def attempt_key(self) -> str:
        """Return the key under which the current attempt is in the journal."""
        return f"{self.key}/{self.attempt}"

    @property
    def can_send(self) -> bool:
        """Return whether the current attempt can send the call, and does not only look it up."""
        if self.running is not None:
            return False
        return self.mode == "send" or self.capability.definition.idempotency.strategy == "keyed"

    @property
    def denied(self) -> Failure | None:
        """Return why the issuer refused a credential, if nothing can have been sent before this attempt; else None."""
        refused = self.lacking is not None and self.lacking.code == "identity_refused"
        return self.lacking if refused and self.mode == "send" else None
