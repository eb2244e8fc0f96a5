"""The two parts of DBOS that are not public and that this package needs. No other module touches a private part of it.

`recover_workflows`: the public ways to recover a dead executor's workflows are an HTTP admin server and Conductor, a
service outside the deployment. The public `resume_workflow` resets the count of recoveries, by which a run that kills
its workers is found. `refuse_pickles`: DBOS always registers its pickle serializer beside the one it is configured with
and uses it for every row that names it; no setting removes it.

`tests/unit/engine/durable/test_dbos_internals.py` fails when DBOS changes either of them.
"""

from __future__ import annotations

from typing import Any


def recover_workflows(executor_id: str) -> int:
    """Queue again the pending workflows of a dead executor, each counted as a recovery. Returns how many there were.

    Idempotent: a workflow that is queued again no longer names the dead executor.
    """
    from dbos import DBOS

    return len(DBOS._recover_pending_workflows([executor_id]))


def refuse_pickles() -> None:
    """Make DBOS fail on a row that names the pickle serializer, for the rest of this process.

    Otherwise, anybody who can write to the queue's tables could run code in every worker.
    """
    from dbos._serialization import DefaultSerializer

    def refuse(_: str) -> Any:
        raise TypeError("the queue holds JSON and nothing else")

    DefaultSerializer.deserialize = staticmethod(refuse)  # type: ignore[assignment, method-assign]
