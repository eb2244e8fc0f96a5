"""Protocols of everything that the core asks of the outside, and of what one plane offers to another.

- `outside`: clock, entropy, keys, directory, adapters, admission, witness, engine.
- `storage`: the journal store, the graph and the artifacts of a tenant.
- `gates`: the gate of an agent's session, as frameworks use it, and what it answers.
- `seams`, `calls`: what one plane offers another. `planning`, `models`, `credentials`, `claims`, `concurrency`.

Each implementation puts its technology first (`SqliteStore`) and passes one shared test suite (`tests/suites`).
The core is `async def` and awaits these ports only, so the simulator and a replay drive it without an event loop.
"""
