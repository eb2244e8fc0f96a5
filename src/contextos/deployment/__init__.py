"""Everything that keeps runs going: the deployment that drives them, and the actions of operators on them.

- `deployment`: accept a request, drive its run, view it; `driver`: one drive of a run, under a lease; `ports`: the
  external systems and the settings that a deployment uses.
- `operator`: answer an approval, settle an effect, cancel, erase; `slot_answers`: fill a slot; `signing`: sign
  an answer or a settlement.
- `leases`, `suspended_runs`, `dead_letters`, `lru`: who drives a run, cached loops, runs that failed for good, caches.
- `queries`: the read side; `stream`, `why`: the events of a run for a reader, and why it did what it did.
- `preview`: compile without a run; `restore`, `witness`: record a restore, publish signed heads.

Does not own: the loop itself (`runtime.loop`), which runs are due and on which worker (`workspace.engine`), how
journals are stored (`store`), or how a person's decision is checked (`trust.approvals`).

Invariants, with the tests that prove them:

- A run has one driver at a time, and a driver that was taken over cannot append: `tests/e2e/test_heartbeats.py`,
  `tests/e2e/test_stopped_worker.py`, `tests/unit/deployment/test_leases.py`.
- A caller that gave up can repeat its request and gets the same run: `tests/e2e/test_interrupted_callers.py`.
- A suspended loop that is resumed and one that is derived again give the same result:
  `tests/e2e/test_suspended_runs.py`.
- Two answers, or an answer and a deadline, never both count: `tests/e2e/test_approvals.py`.
- A run on the dead-letter list is not driven until it is retried or its journal grows:
  `tests/unit/deployment/test_dead_letters.py`.
- A cut of the index or of `control` is found against a witness, also after a restore:
  `tests/unit/deployment/test_witness.py`, `tests/unit/deployment/test_restore.py`.
"""
