"""The names of the durable engine's queues and workflows (drives of runs), their limits, and how their
rows are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contextos.engine.fair_queue import RunKey

if TYPE_CHECKING:
    from dbos import WorkflowStatus

RUNS: Final = "contextos-runs"
ALONE: Final = "contextos-alone"
"""Queue of runs that may have killed their workers: one at a time in the whole deployment."""
WATCHES: Final = "contextos-watches"
DRIVE: Final = "contextos.drive"
DRIVE_ALONE: Final = "contextos.drive_alone"
DRIVES: Final = [DRIVE, DRIVE_ALONE]
RECOVER: Final = "contextos.bury"
MAX_NAME: Final = 200
TICK_US: Final = 1_000_000
"""How often DBOS polls delayed workflows."""
LOST: Final = ["ERROR", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
"""States of workflows that never finished. A workflow of ours succeeds whatever the result of its drive is."""
LIVE: Final = ["ENQUEUED", "PENDING", "DELAYED"]


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits of the queue, shared by all workers of a deployment: those of the worker that started last apply.

    `store` names the store whose runs the queue holds; workers of another store are refused.
    `rate_per_tenant` is how many drives of a tenant can start within `rate_period_ms`; None means no limit.
    `max_drives_per_tenant_in_all` counts over all workers. `polling_interval_ms` is how often a worker polls the queue
    of runs that are not driven alone. A worker that is silent for `dead_after_ms` is dead. A run that lost more than
    `max_recoveries` workers is driven alone, and becomes a dead letter after as many again.
    """

    store: str = ""
    max_drives: int = 32
    max_drives_per_tenant: int = 8
    max_drives_per_tenant_in_all: int | None = None
    rate_per_tenant: int | None = None
    rate_period_ms: int = 1000
    polling_interval_ms: int = 50
    dead_after_ms: int = 10_000
    max_recoveries: int = 1
    threads: int = 4
    connect_timeout_s: int = 5
    keep_finished_ms: int = 3_600_000
    max_listed: int = 10_000


@dataclass(frozen=True, slots=True)
class PendingWorkflow:
    """The place of a run in the queue (a DBOS workflow). `status` is `ENQUEUED`, `DELAYED` (until `until_us`, Unix µs)
    or `PENDING`.
    """

    workflow_id: str
    status: str
    until_us: int

    @property
    def is_retry(self) -> bool:
        return self.workflow_id.endswith("/retry")

    @property
    def is_timer(self) -> bool:
        return self.status == "DELAYED" and not self.is_retry


def pending_workflow(workflow: WorkflowStatus) -> PendingWorkflow:
    return PendingWorkflow(workflow.workflow_id, workflow.status, (workflow.delay_until_epoch_ms or 0) * 1000)


def run_of(workflow: WorkflowStatus) -> RunKey | None:
    """Return the run that a workflow's id names, or None if the id has another form."""
    parts = workflow.workflow_id.split("/")
    return run_named(*parts[:2]) if len(parts) >= 3 else None


def run_named(tenant_id: object, run_id: object) -> RunKey | None:
    """Return (tenant, run) if both are valid ids, otherwise None. Rows of the queue can be written by others."""
    names = (tenant_id, run_id)
    if all(isinstance(name, str) and 0 < len(name) <= MAX_NAME and "/" not in name for name in names):
        return str(tenant_id), str(run_id)
    return None
