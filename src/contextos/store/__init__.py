"""Storage: the ports `Stores`, `Graph`, `Artifacts`, `Curation` and `Witness`, each on several technologies.

- `sqlite`: one SQLite file, or a database in memory. One writer commits in groups; any number of readers.
- `postgres`: one PostgreSQL database, for any number of machines. One writer for each event loop commits in groups.
- `shared`: the rules that are the same in both.
- `witness`: signed heads, kept in a file or behind a URL, outside the database that they vouch for.

It does not own what an entry or a document means: it keeps bytes, checks sequences and versions, and separates tenants.

Invariants, proven by `tests/suites/store_suite.py` and `tests/suites/graph_suite.py` for every technology: a batch is
stored whole or not at all; an entry is appended at exactly the next sequence; a `Conflict` names the stream or document
that changed; no tenant sees another's data; no entry is edited or deleted, but an erasure empties its body and salt.
Artifacts are compared with a reference in `tests/differential/test_slots.py`. `tests/unit/store/sqlite` and
`tests/unit/store/postgres` prove that an acknowledged commit survives a kill, and that every caller of a failed commit
gets an error. `tests/unit/store/postgres/test_isolation.py` proves that the application's role sees one tenant only.
"""
