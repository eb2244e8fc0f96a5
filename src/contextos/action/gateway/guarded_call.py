"""What the guards of the tool gateway use and answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from contextos.action.content.seen_content import SeenContent
from contextos.action.gateway.delivery import DispatchPorts
from contextos.action.registry import Registry
from contextos.contracts.controls import CheckArgs
from contextos.contracts.envelopes.artifacts import Withheld
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.tool import ToolStatus
from contextos.contracts.model import final_fields
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.ports.seams import Approvals, Journal, Policy
from contextos.contracts.scope import RunScope


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
class GuardContext:
    """Everything that the guards (the checks of the gateway) of one run use. `seen` is the content that it has seen.

    `guards` has those that can refuse a call of a tool, by its id; every guard is asked about another tool.
    """

    journal: Journal
    scope: RunScope
    policy: Policy
    approvals: Approvals
    registry: Registry
    ports: DispatchPorts
    check_args: CheckArgs
    seen: SeenContent
    guards: Mapping[str, tuple[Guard, ...]]


Guard = Callable[[GuardContext, ToolCall], Awaitable[Refusal | None]]
"""One check of the gateway: it adds to the call what it found out, or returns why it refuses it."""
