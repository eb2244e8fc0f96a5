"""A store that cannot be used is one sentence from every command, and nothing of a deployment starts on it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.cli import run_command_line as command
from contextos.errors import Unavailable
from contextos.store.postgres.schema import POSTGRES_SCHEMA_VERSION
from tests.postgres import LOGIN, PASSWORD, Database, Server
from tests.world import open_world, request

Said = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def made(postgres: Server) -> Iterator[Database]:
    database = postgres.database()
    yield database
    database.drop()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "shop"
    assert command(["demo", "--yes", "--json", "--keep", str(path)]) == 0
    settings = (path / "contextos.toml").read_text()
    (path / "settings").write_text(settings.replace("store =", "# store ="))
    return path


@pytest.fixture
def said(shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """What a command says in a workspace whose store is at a URL: exit code and error."""
    path = shop
    monkeypatch.setenv("CONTEXTOS_WORKSPACE", str(path))
    settings = (path / "settings").read_text()

    def run(url: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        (path / "contextos.toml").write_text(f"store = '{url}'\n{settings}")
        capsys.readouterr()
        code = command([*(str(path / one) if one.endswith(".json") else one for one in arguments), "--json"])
        error = orjson.loads(capsys.readouterr().out).get("error", {})
        assert PASSWORD not in str(error)
        return code, error

    return run


def one_sentence(error: dict[str, Any], says: str, remedy: str) -> None:
    (problem,) = error["problems"]
    assert says in problem["detail"]
    assert remedy in problem["remedy"]
    assert "\n" not in error["detail"]


def with_options(url: str, options: str) -> str:
    return url + ("&" if "?" in url else "?") + options


@pytest.mark.requirement("J-START")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("sslmode=verify-full&sslrootcert=/nowhere/root.pem", "the file of `sslrootcert` cannot be read"),
        ("sslmode=verify-full&sslrootcert=/", "the file of `sslrootcert` cannot be read: is a directory"),
        (f"sslmode=verify-full&sslrootcert={__file__}", "TLS with its server fails"),
        (f"sslrootcert={__file__}&sslcert=/nowhere/app.crt&sslkey=/nowhere/app.key", "the file of `sslcert`"),
        ("sslmode=perhaps", "`sslmode` parameter must be one of"),
        ("no_such_option=1", "no_such_option"),
    ],
)
def test_a_wrong_option_of_the_url_is_a_setting(said: Said, made: Database, options: str, says: str) -> None:
    for line in (("runs", "list"), ("store", "migrate", "--url", with_options(made.owner, options))):
        code, error = said(with_options(made.app, options), *line)
        assert (code, error["code"]) == (2, "invalid_settings")
        one_sentence(error, says, "correct")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("VALUES ('0999')", f"its schema `0999` is newer than `{POSTGRES_SCHEMA_VERSION}`"),
        ("VALUES ('0000')", "its schema `0000` is not a version of contextos"),
        ("VALUES ('')", "its schema `` is not a version of contextos"),
        ("SELECT '' WHERE false", "its schema records 0 versions instead of one"),
        ("VALUES ('0001'), ('0000')", "its schema records 2 versions instead of one"),
    ],
)
def test_a_version_that_is_not_ours_is_refused_by_the_start_and_by_migrate(
    said: Said, made: Database, rows: str, says: str
) -> None:
    made.execute("DELETE FROM contextos.schema_version")
    made.execute(f"INSERT INTO contextos.schema_version {rows}")
    try:
        for line in (("runs", "list"), ("invoke", "requests/small.json"), ("store", "migrate", "--url", made.owner)):
            code, error = said(made.app, *line)
            assert (code, error["code"]) == (2, "invalid_settings")
            one_sentence(error, says, "run a newer contextos" if "newer" in says else "restore the database")
    finally:
        made.execute("DELETE FROM contextos.schema_version")
        made.execute(f"INSERT INTO contextos.schema_version VALUES ('{POSTGRES_SCHEMA_VERSION}')")


@pytest.mark.requirement("J-START")
@pytest.mark.parametrize(
    ("take", "give", "says"),
    [
        (
            "REVOKE INSERT ON contextos.journal FROM contextos_app",
            "GRANT INSERT ON contextos.journal TO contextos_app",
            "INSERT on `journal`",
        ),
        (
            "REVOKE EXECUTE ON FUNCTION contextos.due FROM contextos_app",
            "GRANT EXECUTE ON FUNCTION contextos.due TO contextos_app",
            "EXECUTE on `due`",
        ),
        (
            "ALTER FUNCTION contextos.due RENAME TO undue",
            "ALTER FUNCTION contextos.undue RENAME TO due",
            "EXECUTE on `due`",
        ),
        (
            "ALTER TABLE contextos.documents RENAME TO papers",
            "ALTER TABLE contextos.papers RENAME TO documents",
            "is not as `contextos store migrate` made it",
        ),
        (
            "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
            "GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC",
            "permission denied for function pg_control_system",
        ),
        (
            f"REVOKE contextos_app FROM {LOGIN}",
            f"GRANT contextos_app TO {LOGIN}",
            "its role is not allowed to use the schema",
        ),
    ],
)
def test_a_right_or_a_part_that_is_missing_is_found_before_anything_starts(
    said: Said, made: Database, take: str, give: str, says: str
) -> None:
    made.execute(take)
    try:
        code, error = said(made.app, "invoke", "requests/small.json")
        assert (code, error["code"]) == (2, "invalid_settings")
        assert says in error["detail"]
        assert made.execute("SELECT count(*) FROM contextos.segments")[0][0] == 0
    finally:
        made.execute(give)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://app@127.0.0.1:9/x", 4),
        ("postgresql://app@/x?host=/nowhere", 4),
        ("postgresql://app@no.such.host.invalid/x", 2),
        ("postgresql://app@h:port/x", 2),
        ("mysql://app@h/x", 2),
    ],
)
def test_a_server_that_does_not_answer_is_tried_again_and_a_wrong_url_is_not(said: Said, url: str, code: int) -> None:
    found, error = said(url, "runs", "list")
    assert found == code
    if code == 4:
        assert "no server answers at" in error["detail"]
        assert "try again in 1000 ms" in error["detail"]


def test_a_server_without_tls_is_a_setting_where_tls_is_asked_for(said: Said) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(8)
                connection.sendall(b"N")

        threading.Thread(target=refuse, daemon=True).start()
        code, error = said(f"postgresql://app@127.0.0.1:{server.getsockname()[1]}/x?sslmode=require", "runs", "list")
    assert code == 2
    one_sentence(error, "its server does not accept TLS", "`sslmode`")


@pytest.mark.requirement("J-START")
def test_a_database_that_vanishes_is_typed_while_it_is_used_and_at_the_next_start(
    said: Said, postgres: Server, tmp_path: Path
) -> None:
    database = postgres.database()

    async def go() -> None:
        world = await open_world(tmp_path, stores=database.app)
        await world.invoke(request(900, "req_1"))
        await asyncio.to_thread(database.drop)
        for _ in range(2):
            with pytest.raises(Unavailable) as refused:
                await world.invoke(request(901, "req_2"))
            assert refused.value.retry_after_ms > 0
        assert [one["amount_inr"] for one in world.refunds()] == [900]
        world.stores.close()

    asyncio.run(go())
    code, error = said(database.app, "runs", "list")
    assert code == 2
    one_sentence(error, "there is no such database", "createdb")
