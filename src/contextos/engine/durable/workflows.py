"""What the durable engine's workflows are called, how many there may be, and what their rows say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contextos.engine.fair_queue import RunKey

if TYPE_CHECKING:
    from dbos import WorkflowStatus

RUNS: Final = "contextos-runs"
ALONE: Final = "contextos-alone"
"""For runs that may have taken their worker with them: one of them at a time in the whole deployment."""
WATCHES: Final = "contextos-watches"
DRIVE: Final = "contextos.drive"
DRIVE_ALONE: Final = "contextos.drive_alone"
DRIVES: Final = [DRIVE, DRIVE_ALONE]
BURY: Final = "contextos.bury"
MAX_NAME: Final = 200
TICK_US: Final = 1_000_000
"""DBOS looks at delayed workflows this often."""
LOST: Final = ["ERROR", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
"""Ours end well whatever a drive came to; these did not come to an end, or their worker's body broke."""
WORKER_LOST: Final = ("worker_lost", "every worker that drove it died; find out why before it is retried")
LIVE: Final = ["ENQUEUED", "PENDING", "DELAYED"]


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of the queue, the same for every worker of a deployment: the last one to start says.

    `store` names the store whose runs it holds; workers of another are refused.
    `rate_per_tenant` is how many drives of a tenant may start within `rate_period_ms`; None is no bound.
    `max_drives_per_tenant_in_all` counts over all workers. `polling_interval_ms` is how often a worker looks
    for what is not driven alone.
    `dead_after_ms` is how long a worker may be silent; after `max_recoveries` lost
    workers a run is driven alone, and goes onto the dead-letter list after as many again.
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
    """A workflow that will drive its run or does: `status` is `ENQUEUED`, `DELAYED` (until `until_us`) or `PENDING`."""

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
    """The run that a workflow's id names, if it is one of ours."""
    parts = workflow.workflow_id.split("/")
    return run_named(*parts[:2]) if len(parts) >= 3 else None


def run_named(tenant_id: object, run_id: object) -> RunKey | None:
    """A run, if these may be the names of one: whoever can write to the queue can write anything."""
    names = (tenant_id, run_id)
    if all(isinstance(name, str) and 0 < len(name) <= MAX_NAME and "/" not in name for name in names):
        return str(tenant_id), str(run_id)
    return None
