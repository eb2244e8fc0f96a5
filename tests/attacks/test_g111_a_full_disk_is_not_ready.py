"""Attack: a server whose disk is full says that it is ready, so a load balancer sends it what it cannot store.

Source: issue K1b, class I; docs/operations.md, "What to watch".
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.http_face import begin_refunds, http_face
from tests.postgres import Database, Server, mounted_tablespace


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("nobody may mount a file system here")
    try:
        yield disk
    finally:
        # Lazily: a reader of the store can be open still.
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.fixture
def small_database(postgres: Server) -> Iterator[tuple[Database, Path]]:
    """A database on a file system of a few MiB, and that file system. The log of the server is elsewhere."""
    if postgres.files is None:
        pytest.skip("the disk of somebody else's server is not ours to fill")
    with mounted_tablespace(postgres, "64m") as disk:
        if disk is None:
            pytest.skip("nobody may mount a file system here")
        made = postgres.database(tablespace="small")
        yield made, disk
        made.drop()


def refuse_temporary_tables(database: Database) -> None:
    database.execute(f"REVOKE TEMPORARY ON DATABASE {database.name} FROM PUBLIC")


@pytest.mark.parametrize("may_probe", [True, False])
def test_a_server_whose_database_found_its_disk_full_is_not_ready(
    small_database: tuple[Database, Path], may_probe: bool, tmp_path: Path
) -> None:
    database, disk = small_database
    if not may_probe:
        refuse_temporary_tables(database)
    with http_face(tmp_path, lambda path: begin_refunds(path, database.app)) as face:
        assert face.anonymous("GET", "/v1/ready").status_code == 200
        fill(disk / "filler")
        refused = None
        for _ in range(200):
            refused = face.send("POST", "/v1/runs", json=face.request())
            if refused.status_code == 503:
                break
        assert refused is not None
        assert refused.status_code == 503, "the disk was not full"
        for _ in range(2):
            full = face.anonymous("GET", "/v1/ready")
            assert (full.status_code, int(full.headers["retry-after"]) >= 1) == (503, True), full.text
            assert "No space left" not in full.text
        (disk / "filler").unlink()
        if not may_probe:
            assert face.send("POST", "/v1/runs", json=face.request()).status_code == 201
        assert face.anonymous("GET", "/v1/ready").json() == {"status": "ready"}
        assert face.send("POST", "/v1/runs", json=face.request()).status_code == 201


def test_a_server_is_ready_again_once_there_is_room(small_disk: Path) -> None:
    with http_face(small_disk) as face:
        assert face.anonymous("GET", "/v1/ready").status_code == 200
        fill(small_disk / "filler")
        full = face.anonymous("GET", "/v1/ready")
        assert (full.status_code, int(full.headers["retry-after"]) >= 1) == (503, True), full.text
        assert "No space left" not in full.text, "who asks without a token learns nothing of the machine"
        assert face.anonymous("GET", "/v1/health").status_code == 200
        (small_disk / "filler").unlink()
        assert face.anonymous("GET", "/v1/ready").json() == {"status": "ready"}
        assert face.send("POST", "/v1/runs", json=face.request()).status_code == 201
