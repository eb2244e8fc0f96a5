"""What guarantees that somebody calls `advance` for a run that is due, behind the `Engine` port.

Owns when a run is driven, how many at once, and that this process drives it once at a time. Does not own what a drive
does (runtime), nor who may commit: the lease and the stream's sequence decide that in the store.

- `local.LocalEngine`: asyncio tasks in this process; a submit is a hint, the sweep of `due` is the truth.
- `durable.DurableEngine`: DBOS workflows on PostgreSQL, in any number of processes; the same hint and the same truth.
  What it asks of DBOS stands in `dbos_queue`; `placing` brings hints there, and `hints` keeps those whose time is not.
- `gate.Gate`: the `Admission` port: how many callers are in and how many runs have a turn, tenants in turn (`fair`).
- `owner.Owner`: who this process is to the leases, and whether another owner on this machine still lives.

Tests: `tests/unit/engine`.
"""
