"""Where journals, documents, graphs and artifacts are kept, behind the ports of `contracts.ports`.

Owns durability, the atomic commit and the order of a stream. Does not own what entries mean, nor the
verification of the chain (trust.ledger).

- `sqlite.SqliteStores`: one file in WAL mode, one writer thread per process with group commit; several
  processes may share the file.
- `postgres.PostgresStores`: one PostgreSQL database, one writer per event loop with group commit; any number of
  machines may share it. Its schema is `migrations`; a SQLite file keeps its own `schema.sql` for now.
- `memory.MemoryStores`: the reference model of the port; its coroutines never suspend.

- `memory_slots`, `sqlite_slots`, `postgres_slots`: artifacts and the audit of selections in the same three places. What
  they do alike stands in `artifacts` and `slot_rows`, and `tests/differential/test_slots.py` holds them to a reference.

Invariants, and the tests that prove them for each (`tests/suites/store_suite.py`, `graph_suite.py`):
a batch happens whole or not at all; entries are appended at exactly the next sequence; a lost
compare-and-set names what stood in the way; nothing of one tenant is visible to another; nothing is
edited or deleted except the body and salt of an erased entry. SQLite alone
(`tests/unit/store/test_sqlite_*.py`): what was acknowledged survives a kill, and every failing
operation is reported to everybody whose commit it took down. PostgreSQL alone (`test_postgres_*.py`): the same for a
server that crashes, and no role that runs the application can see past its tenant.
"""
