"""The ports `Engine` and `Admission`: an engine calls `advance` for every run that is due.

Owns when a run is driven, how many runs are driven at once, and that one process drives a run once at a time. Does not
own what a drive does (runtime), nor which process is allowed to commit: the lease and the stream's sequence decide that
in the store.

- `local.LocalEngine`: asyncio tasks in this process.
- `shared.SharedEngine`: runs that a worker claims in the store, in any number of processes.
- `sweeper.Sweeper`: how a local engine finds due runs, and the periodic tasks of both.
- `failure_tracker.FailureTracker`: how both handle failed drives.
- `admission_controller.AdmissionController`: how many callers and driven runs there are at once (`fair_queue`).
- `event_delivery.EventDelivery`: the tasks that call the handlers of subscribers to events.
- `lease_owner.Owner`: the identity of this process in leases, and whether another owner on this machine lives.

Invariants, with the tests that prove them:

- A lost hint loses no run, and a run that fails twice over one journal becomes a dead letter.
  `tests/unit/workspace/engine/test_local.py`, `tests/unit/workspace/engine/test_shared.py`,
  `tests/unit/workspace/engine/test_failure_tracker.py`
- Two workers do not take the same run; a dead worker's runs are driven by another.
  `tests/unit/workspace/engine/test_shared.py`
- A subscriber that waits or fails holds up no other. `tests/unit/workspace/engine/test_event_delivery.py`
- No tenant starves another. `tests/unit/workspace/engine/test_admission_controller.py`,
  `tests/unit/workspace/engine/test_admission_controller_yielding.py`
"""
