"""What the durable engine's workflows are called, how many there may be, and what their rows say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contextos.engine.fair import Run

if TYPE_CHECKING:
    from dbos import WorkflowStatus

RUNS: Final = "contextos-runs"
WATCHES: Final = "contextos-watches"
DRIVE: Final = "contextos.drive"
BURY: Final = "contextos.bury"
TICK_US: Final = 1_000_000
"""DBOS looks at delayed workflows this often."""
LOST: Final = ["ERROR", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
"""Ours end well whatever a drive came to; these did not come to an end, or their worker's body broke."""
WORKER_LOST: Final = ("worker_lost", "every worker that drove it died; find out why before it is retried")
LIVE: Final = ["ENQUEUED", "PENDING", "DELAYED"]


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of the queue, the same for every worker of a deployment: the last one to start says.

    `rate_per_tenant` is how many drives of a tenant may start within `rate_period_ms`; None is no bound.
    `max_drives_per_tenant_in_all` counts over all workers. `polling_interval_ms` is how often a worker looks.
    `dead_after_ms` is how long a worker may be silent; `max_recoveries` how many workers a run may take with it.
    """

    max_drives: int = 32
    max_drives_per_tenant: int = 32
    max_drives_per_tenant_in_all: int | None = None
    rate_per_tenant: int | None = None
    rate_period_ms: int = 1000
    polling_interval_ms: int = 50
    dead_after_ms: int = 10_000
    max_recoveries: int = 3
    threads: int = 4
    connect_timeout_s: int = 5
    keep_finished_ms: int = 3_600_000
    max_listed: int = 10_000


@dataclass(frozen=True, slots=True)
class Live:
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


def live(workflow: WorkflowStatus) -> Live:
    return Live(workflow.workflow_id, workflow.status, (workflow.delay_until_epoch_ms or 0) * 1000)


def run_of(workflow: WorkflowStatus) -> Run:
    tenant_id, run_id, *_ = workflow.workflow_id.split("/")
    return tenant_id, run_id
