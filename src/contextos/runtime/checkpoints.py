"""Session checkpoints: the recorded progress of a `long_running` run after each verdict of the Critic.

The Critic checks a plan before it runs and scores it afterwards. A checkpoint is durable, and is for people and
programs that watch a session. A run does not continue from a checkpoint: it continues from its journal.
Source: docs/design/specification.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from contextos.contracts.envelopes.plan import Plan
from contextos.contracts.envelopes.record import BudgetUsage, SessionCheckpoint
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import ScoreVerdict, VerifyVerdict
from contextos.contracts.scope import RunScope
from contextos.runtime.environment import RunEnvironment
from contextos.trust.journal.record import budget_usage


async def checkpoint(
    scope: RunScope,
    plan: Plan | None,
    verdict: VerifyVerdict | ScoreVerdict,
    results: Mapping[str, ToolResultEnvelope],
    environment: RunEnvironment,
) -> None:
    """Record the progress of a `long_running` run after `verdict`, and commit both. Does nothing for other runs."""
    if scope.session is None or scope.received.request.mode != "long_running":
        return
    log = environment.journal.log()
    state = SessionCheckpoint(
        checkpoint=1 + len(environment.journal.account.of("session.checkpointed")),
        session_id=scope.run.session_id,
        run_id=scope.run.run_id,
        verdict=verdict,
        head=log[-1].hash,
        after="run.scored" if log[-1].kind == "run.scored" else "plan.verified",
        plan_id=plan.plan_id if plan else None,
        revision=plan.revision if plan else None,
        pack_ref=scope.pinned.pack_ref,
        snapshot=scope.pinned.snapshot,
        steps_done=tuple(step for step, result in results.items() if result.status in ("ok", "completed")),
        budget_used=BudgetUsage(**budget_usage(environment.used())),
        deadline_us=scope.session.deadline_us,
    )
    environment.journal.derive("session.checkpointed", str(state.checkpoint), state.to_json())
    await environment.journal.commit()
