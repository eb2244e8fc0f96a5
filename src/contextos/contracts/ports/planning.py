"""The `Planner` port: a compiled context goes in, a proposed plan comes out. A planner is handed no other port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from contextos.contracts.encoding.codec import JsonValue


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The input of a planner. `revision` is 0 for a run's first plan and rises with each new plan.

    `compiled` is the compiled context as JSON. `templates` are the task templates that the plan is allowed to name
    (`template_id@version`), the preferred one first. `evidence` are the evidence names that a parameter can bind.
    """

    run_id: str
    revision: int
    compiled: Mapping[str, Any]
    templates: tuple[str, ...]
    evidence: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return this request as a JSON object."""
        return {
            "run_id": self.run_id,
            "revision": self.revision,
            "compiled": dict(self.compiled),
            "templates": list(self.templates),
            "evidence": list(self.evidence),
        }


class Planner(Protocol):
    """Proposes plans. It cannot execute anything: the Critic verifies every plan before a step runs.

    `name` identifies the planner and its version (`acme.planner@1.2.0`). It is recorded with every run, and a run is
    driven on only where the planner of that name is configured; a replay needs none.
    """

    name: str

    async def propose(self, request: PlanRequest) -> Mapping[str, JsonValue]:
        """Return the wire form of a `ProposedPlan`: `template_id`, `steps` and `decision_checkpoints`, nothing else.

        A parameter is a literal or `{"from": "request" | "pack" | "evidence" | "step", "pointer": RFC 6901}`. The
        answer has at most 256 KiB and is due within the template's `plan_timeout_ms`. It is recorded before it is
        used. An answer that does not fit ends the attempt with the failure `schema_mismatch`.

        The named template is a floor: the gates that its steps require for a tool are added to the plan's gates, and a
        checkpoint of another decision spec ends the attempt with the failure `violates_decision_spec`.

        Raises:
            Unavailable: the planner cannot answer now; the run is driven again later. The same holds for any other
                exception and for an answer that comes too late.
        """
        ...
