"""What every test shares: how long Hypothesis searches, and never a deadline.

`ci` is the default and draws the same examples on every machine; `--hypothesis-profile=soak` searches on.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import sys
import tempfile
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

MEMORY = "/dev/shm"
ROOM = 4 << 30


def keep_files_in_memory() -> None:
    """Put temporary files, SQLite's and PostgreSQL's too, on Linux's file system in memory: a disk takes 4 ms to sync.

    They stay where they are if TMPDIR names a folder, or if that file system has less than 4 GiB or runs no programs.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    if shutil.disk_usage(MEMORY).free < ROOM or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY


keep_files_in_memory()

# What is collected stays: modules, tests and cases. The garbage collector would walk it again and again.
gc.disable()
gc.set_threshold(10_000, 10, 10)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No test is named after an address in memory: each process of pytest-xdist would collect another name."""
    named = [item.nodeid for item in items if re.search(r" at 0x[0-9a-f]+", item.nodeid)]
    if named:
        raise pytest.UsageError(f"give each case an id, these are named after an address: {', '.join(named)}")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The default witnesses of the tests' workspaces are in a folder of the session, not in the home of the user."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def rarely_looks() -> Iterator[None]:
    """Installed files do not change while tests run, and a look at all of them takes a third of a second."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("contextos.adapters.function.trees.LOOK_AGAIN_S", 60)
        yield


@pytest.fixture(autouse=True)
def own_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test imports from a temporary folder ends with it: the next test's `agent` is its own."""
    before, temporary = set(sys.modules), f"{tmp_path_factory.getbasetemp()}{os.sep}"
    yield
    for name in sys.modules.keys() - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(temporary):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """What a test configures of the log ends with it: `configure` is for the edge of a process."""
    logger = logging.getLogger("contextos")
    handlers, level, propagates = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagates
    logger.setLevel(level)


@pytest.fixture
def looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status of installed files is looked at each time, so that a test does not wait for the next look."""
    monkeypatch.setattr("contextos.adapters.function.trees.LOOK_AGAIN_S", 0)
    monkeypatch.setattr("contextos.adapters.function.trees.LOOK_SHARE", 0)


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
