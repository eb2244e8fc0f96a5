"""Session checkpoints: after every verdict of the Critic a `long_running` run puts on record, durably, how far it is.

Nothing reads one to go on: the run goes on from its journal, in which they stand. They are for those who look at a
session, and for who takes up what it left. Source: docs/design/specification.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from contextos.contracts.envelopes.plan import Plan
from contextos.contracts.envelopes.record import BudgetUsage, SessionCheckpoint
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import ScoreVerdict, VerifyVerdict
from contextos.contracts.scope import RunScope
from contextos.runtime.environment import RunEnvironment
from contextos.trust.journal.usage import usage


async def checkpoint(
    scope: RunScope,
    plan: Plan | None,
    verdict: VerifyVerdict | ScoreVerdict,
    results: Mapping[str, ToolResultEnvelope],
    environment: RunEnvironment,
) -> None:
    """Record the checkpoint of the verdict that was just derived, and commit both. Other modes have no checkpoints."""
    if scope.session is None:
        return
    log = environment.journal.log()
    used = usage(log)
    reached = SessionCheckpoint(
        checkpoint=1 + sum(entry.kind == "session.checkpointed" for entry in log),
        session_id=scope.run.session_id,
        run_id=scope.run.run_id,
        verdict=verdict,
        head=log[-1].hash,
        after="run.scored" if log[-1].kind == "run.scored" else "plan.verified",
        plan_id=plan.plan_id if plan else None,
        revision=plan.revision if plan else None,
        pack_ref=scope.pack_ref,
        snapshot=scope.snapshot,
        steps_done=tuple(step for step, result in results.items() if result.status in ("ok", "completed")),
        budget_used=BudgetUsage(
            tokens=used.tokens,
            tool_calls=used.tool_calls,
            cost_usd_cents=used.cost_cents,
            wall_clock_ms=used.wall_clock_us / 1_000,
        ),
        deadline_us=scope.session.deadline_us,
    )
    environment.journal.derive("session.checkpointed", str(reached.checkpoint), reached.to_json())
    await environment.journal.commit()


__all__ = ["checkpoint"]
