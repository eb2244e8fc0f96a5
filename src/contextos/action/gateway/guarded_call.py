"""A call on its way through the guards of the tool gateway, and what they use and answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Final

from contextos.action.content.seen_content import SeenContent
from contextos.action.gateway.delivery import DispatchPorts
from contextos.action.registry import Registry
from contextos.contracts.controls import CheckArgs
from contextos.contracts.entries.derived import TracedArgument
from contextos.contracts.envelopes.artifacts import Withheld
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.tool import ToolStatus
from contextos.contracts.journal import Write
from contextos.contracts.model import final_fields
from contextos.contracts.ports.seams import Approvals, Journal, Policy
from contextos.contracts.scope import Capability, Fact, Redeemed, RunScope, StepCall


@final_fields
class Refusal:
    """The result of a call that a guard (one check of the gateway) refused: its status, an error code
    and the reason. `made_by` names the run and the call that did a replayed operation, and `withheld` why its answer
    is not here. `facts` names the limit that was exhausted.
    """

    status: ToolStatus
    code: str
    detail: str
    pointer: str | None = None
    output: Any = None
    mutations: tuple[str, ...] = ()
    decision: PolicyDecision | None = None
    made_by: Mapping[str, str] | None = None
    facts: tuple[str, ...] = ()
    withheld: Withheld | None = None


UNUSABLE: Final = Withheld(
    code="unsafe_output", detail="the operation was done before, and what was answered then is withheld"
)


@final_fields
class GuardedCall:
    """A call on its way through the guards (the checks of the gateway), which fill in the fields that have a default.

    `key` is `<plan revision>/<step id>`. `evidence` holds the evidence about these arguments, by name; `frozen` is what
    of it is in use. `traced` says where each argument was found; it is empty if the run has seen nothing untrusted,
    which `saw_untrusted` says. `kept` keeps what it writes out of untrusted content, for later runs.
    `operation` is the recorded answer of `look_up_operation`. `preconditions` are checks that must still hold in the
    commit that records the call; `counts` builds the writes that count it in the history.
    """

    step_call: StepCall
    capability: Capability
    tool_call_id: str
    key: str
    args: Mapping[str, Any]
    evidence: Mapping[str, Fact] = field(default_factory=dict)
    decision: PolicyDecision | None = None
    idempotency_key: str | None = None
    operation: Mapping[str, Any] = field(default_factory=dict)
    frozen: tuple[Fact, ...] = ()
    approval: Redeemed | None = None
    preconditions: tuple[Write, ...] = ()
    counts: Callable[[], tuple[Write, ...]] = tuple
    history: Mapping[str, Any] = field(default_factory=dict)
    traced: Mapping[str, TracedArgument] = field(default_factory=dict)
    saw_untrusted: bool = False
    kept: Callable[[], Write] | None = None

    @property
    def untrusted_destinations(self) -> dict[str, TracedArgument]:
        """Return the arguments that say where something goes, and that nothing trusted has.

        Where the tool does not state which they are, a value that the agent made counts once the run has seen
        untrusted content, which can have told it the value in any disguise.
        """
        names = self.capability.adapter.destinations(self.capability.definition)
        made_counts = self.capability.definition.destinations is not None or self.saw_untrusted
        counts = ("untrusted", "unknown") if made_counts else ("untrusted",)
        found = {name: self.traced[name] for name in sorted(names) if name in self.traced}
        return {name: one for name, one in found.items() if one.integrity in counts}


@final_fields
class GuardContext:
    """Everything that the guards (the checks of the gateway) of one run use. `seen` is the content that it has seen."""

    journal: Journal
    scope: RunScope
    policy: Policy
    approvals: Approvals
    registry: Registry
    ports: DispatchPorts
    check_args: CheckArgs
    seen: SeenContent


Guard = Callable[[GuardContext, GuardedCall], Awaitable[GuardedCall | Refusal]]
