"""The TypeScript client of `examples/typescript`: generated from the OpenAPI document of a real server, compiled with
`tsc --strict`, and run by Node against that server.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from contextos.client import connect
from tests.http_face import LEAD, REQUESTER, TENANT, begin_refunds
from tests.loopback import Asked, serving
from tests.service_process import ServiceProcess, service
from tests.typescript import EXAMPLE, PINNED, node, npm, typescript_project
from tests.world import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, Path]]:
    place = tmp_path_factory.mktemp("service")
    run(begin_refunds(place / "w"))
    with service(place / "w", TENANT, REQUESTER, LEAD, XDG_STATE_HOME=str(place / "state")) as started:
        yield started, place / "w"


@pytest.fixture(scope="module")
def project(server: tuple[ServiceProcess, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return typescript_project(tmp_path_factory.mktemp("typescript"), server[0].url)


@pytest.fixture(scope="module")
def built(project: Path) -> Path:
    said = npm(project, "run", "build")
    assert said.returncode == 0, said.stdout + said.stderr
    return project


def test_a_refund_is_asked_for_approved_and_followed(built: Path, server: tuple[ServiceProcess, Path]) -> None:
    started, workspace = server
    tokens = {"REQUESTER_TOKEN": started.tokens[REQUESTER], "LEAD_TOKEN": started.tokens[LEAD]}
    request, key = workspace / "requests" / "next.json", workspace / "keys" / f"{LEAD}.key"
    said = node(built, "dist/refund.js", str(request), str(key), CONTEXTOS_URL=started.url, **tokens)
    assert said.returncode == 0, said.stderr
    waiting, decided, counted = said.stdout.splitlines()
    assert (waiting, decided) == ("waiting approval", f"DECIDED approved {LEAD}")
    with connect(started.url, started.tokens[REQUESTER]) as client:
        [found] = [
            one for one in client.runs().items if one.request_id == json.loads(request.read_text())["request_id"]
        ]
        events = len(list(client.stream(found.run_id)))
    assert counted == f"{events} {events}", "a gap or a duplicate"


STREAMED = "".join(f'id: run_1:{number}\nevent: CUSTOM\ndata: {{"number": {number}}}\n\n' for number in range(6))
FOLLOW = """
import { connect, follow } from "./client.js";

for await (const event of follow(connect(process.env.CONTEXTOS_URL, () => "token"), "run_1")) console.log(event.id);
"""


def test_a_stream_that_is_cut_after_every_event_has_no_gap_and_no_duplicate(built: Path) -> None:
    events = STREAMED.encode().split(b"\n\n")[:-1]

    def cut(asked: Asked) -> tuple[int, bytes, dict[str, str]]:
        after = asked.headers.get("Last-Event-ID", "")
        behind = int(after.rpartition(":")[2]) + 1 if after else 0
        if behind == len(events):
            return 204, b"", {}
        return 200, events[behind] + b"\n\n" + b"id: run_1:9\ndata: {", {"Content-Type": "text/event-stream"}

    (built / "dist" / "follow.js").write_text(FOLLOW, "utf-8")
    with serving(cut) as url:
        said = node(built, "dist/follow.js", CONTEXTOS_URL=url)
    assert said.stdout.split() == [f"run_1:{number}" for number in range(6)], said.stderr


WAITS = """
const refusals = [[503, "7"], [429, "Wed, 21 Oct 2026 07:28:00 GMT"], [503, "9999999999"]];
const problem = JSON.stringify({ type: "urn:x", title: "x", status: 503, detail: "x", code: "x" });
globalThis.fetch = async () => {
  const [status, after] = refusals.shift() ?? [204, ""];
  const headers = { "Content-Type": "application/problem+json", "Retry-After": after };
  return new Response(status === 204 ? null : problem, { status, headers });
};
globalThis.setTimeout = (resume, ms) => { console.log(ms); queueMicrotask(resume); };
"""


def test_a_stream_is_opened_again_when_the_server_says(built: Path) -> None:
    (built / "dist" / "waits.js").write_text(FOLLOW.replace("\n\n", f"\n{WAITS}\n", 1), "utf-8")
    said = node(built, "dist/waits.js", CONTEXTOS_URL="http://127.0.0.1:9")
    assert said.stdout.split() == ["7000", "1000", "86400000"], said.stderr


@pytest.mark.parametrize(
    "line",
    [
        'await api.GET("/v1/nothing");',
        'await api.POST("/v1/runs", { body: { request_id: 7 } });',
        'await api.GET("/v1/runs/{run}", { params: { path: {} } });',
        'const state: number = (await found(api.GET("/v1/runs/{run}", { params: { path: { run: "r" } } }))).state;',
    ],
)
def test_a_program_that_the_document_does_not_allow_is_not_compiled(project: Path, tmp_path: Path, line: str) -> None:
    shutil.copytree(project, tmp_path / "wrong", symlinks=True)
    source = (
        f'import {{ connect, found }} from "./client.js";\nconst api = connect("x", () => "y");\n{line}\nvoid found;\n'
    )
    (tmp_path / "wrong" / "src" / "wrong.ts").write_text(source, "utf-8")
    said = npm(tmp_path / "wrong", "run", "build")
    assert said.returncode != 0
    assert "src/wrong.ts" in said.stdout
    assert "src/client.ts" not in said.stdout


def test_the_packages_are_pinned_in_exact_versions_and_from_no_place() -> None:
    assert not [one for one in PINNED if not one.rpartition("@")[2].replace(".", "").isdigit()]
    files = [path for path in EXAMPLE.rglob("*") if path.is_file()]
    assert not [path for path in files if "registry" in path.read_text("utf-8")]
    assert {path.name for path in files}.isdisjoint({"package-lock.json", "api.d.ts", "openapi.json", ".npmrc"})
    assert os.path.commonpath(files) == str(EXAMPLE)
