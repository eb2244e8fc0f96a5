"""The composition root: builds a running `App` from `Settings`, and alone says which ports a workspace has.

A workspace is a directory with `contextos.toml`, which names everything that is used; nothing is discovered. A program
can bring ports of its own (`opening.open`). Ports and settings whose names begin with `unsafe_` are development
stand-ins, and every record made under one names it.

Invariants, with the tests that prove them:

- Records name the stand-ins in use; none is used in the profile `service`. `tests/attacks/test_e29_ports_in_use.py`
- A store that lacks what its witness has is not opened for a program, and no run of it is driven.
  `tests/attacks/test_g75_a_program_over_a_store_that_was_put_back.py`
- What was opened is closed, also after an error. `tests/unit/workspace/test_opening.py`
"""

from contextos.adapters.encrypted_keys import make_person_key, read_person_key, read_secret
from contextos.adapters.key_files import ListedKey, read_seed, write_seed
from contextos.workspace.application import App
from contextos.workspace.build import make_keys, migrate, open_app, open_for_authors, open_unchecked
from contextos.workspace.engine.request_streams import RequestStream
from contextos.workspace.given import GivenPorts, SystemEntropy, witness_at

__all__ = [
    "App",
    "GivenPorts",
    "ListedKey",
    "RequestStream",
    "SystemEntropy",
    "make_keys",
    "make_person_key",
    "migrate",
    "open_app",
    "open_for_authors",
    "open_unchecked",
    "read_person_key",
    "read_secret",
    "read_seed",
    "witness_at",
    "write_seed",
]
