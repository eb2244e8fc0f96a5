"""Define what the guards of the tool gateway receive and return."""

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
    """The result of a call that a guard (one check of the gateway) refused: its status, an error code and the reason.
    For a replayed operation, `made_by` names the run and the call that did it, and `withheld` says why its answer is
    missing. `facts` names the limit that was exhausted, or the facts that are missing.
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
    """Everything that the guards (the checks of the gateway) of one run use. `seen` is the content that the run has
    seen. `guards` has, by tool id, the guards that can refuse a call of the tool; a call of a tool that is not in it is
    checked by every guard. `deferred` builds the decision record of a waiting run, for the given reason.
    """

    journal: Journal
    scope: RunScope
    policy: Policy
    approvals: Approvals
    registry: Registry
    ports: DispatchPorts
    seen: SeenContent
    guards: Mapping[str, tuple[Guard, ...]]
    check_args: CheckArgs
    deferred: Callable[[str, str], dict[str, Any]]


Guard = Callable[[GuardContext, ToolCall], Awaitable[Refusal | None]]
"""One check of the gateway: it adds its findings to the call and returns None, or returns the refusal of the call."""
