"""What every test shares: how long Hypothesis searches, and never a deadline.

`ci` is the default and draws the same examples on every machine; `--hypothesis-profile=soak` searches on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.postgres import Database, Server

# A slow machine is not a defect: no verdict of a test depends on the time it took.
UNTIMED = [HealthCheck.too_slow]

settings.register_profile("ci", deadline=None, derandomize=True, max_examples=60, suppress_health_check=UNTIMED)
settings.register_profile(
    "soak", deadline=None, derandomize=False, max_examples=5000, print_blob=True, suppress_health_check=UNTIMED
)
settings.load_profile("ci")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real PostgreSQL server, for the whole session."""
    from tests.postgres import any_server

    with any_server() as server:
        yield server


@pytest.fixture
def database(postgres: Server) -> Iterator[Database]:
    """A fresh database with the newest schema."""
    made = postgres.database()
    yield made
    made.drop()
