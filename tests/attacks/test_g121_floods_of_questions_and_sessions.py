"""G121: an agent that opens session after session, and runs that ask one role question after question."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.journal import INDEX
from contextos.contracts.ports.gates import Done, Waiting
from contextos.deployment.gate.gate import Gate
from contextos.errors import Overloaded
from tests.http_face import begin_deploys, begin_refunds, http_face
from tests.mcp_face import LOOKUP, ORDER, refund_workspace, stdio, with_client
from tests.sessions import REFUND, assert_replays, chosen_by_agent, in_world, read_first, refund_args, refund_session
from tests.unit.server.routes.test_sessions import ACME, WHERE, call, opened
from tests.world import TENANT, TestWorld, request

SESSIONS = "[pressure]\nmax_open_sessions_per_agent = 2\n"
QUESTIONS = "[pressure]\nmax_open_questions_per_role = 2\n"


def at_most(world: TestWorld, **limits: int) -> None:
    world.deployment.config = replace(world.deployment.config, pressure=AdmissionLimits(**limits))


async def runs_of(world: TestWorld) -> set[str]:
    return {line.key for line in await world.stores.tenant(TENANT).read(INDEX)}


def test_an_agent_has_no_more_open_sessions_than_the_cap(stores: str, tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        at_most(world, max_open_sessions_per_agent=3)
        flood = [refund_session(world, f"s{number}") for number in range(8)]
        made = await asyncio.gather(*flood, return_exceptions=True)
        gates = [one for one in made if isinstance(one, Gate)]
        refused = [one for one in made if isinstance(one, Overloaded)]
        assert (len(gates), len(refused)) == (3, 5), made
        assert "`max_open_sessions_per_agent` allows (3); finish or cancel some, then open it again" in str(refused[0])
        assert await runs_of(world) == {one.run_id for one in gates}, "nothing is stored of the others"
        assert (await refund_session(world, gates[0].session)).run_id == gates[0].run_id, "an open one is found"
        with pytest.raises(Overloaded):
            await world.invoke(request(900, "by_a_request"))
        ended = await gates[0].finish("denied")
        assert ended.state == "rejected"
        more = await refund_session(world, "one_more")
        with pytest.raises(Overloaded):
            await refund_session(world, "too_many")
        await assert_replays(world, ended.run_id)
        assert more.tools

    in_world(tmp_path, play, stores=stores)


def test_no_role_has_more_open_questions_than_the_cap(stores: str, tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        at_most(world, max_open_questions_per_role=2)
        flood = [world.invoke(request(5_000 + number, f"req_{number}")) for number in range(5)]
        made = await asyncio.gather(*flood, return_exceptions=True)
        assert sum(isinstance(one, Overloaded) for one in made) == 3, made
        waiting = [one for one in made if not isinstance(one, BaseException)]
        kinds = [kind for run_id in await runs_of(world) for kind in await world.kinds(run_id)]
        assert kinds.count("approval.asked") == 2
        assert [(one.waiting or {}).get("for") for one in waiting] == ["approval", "approval"]
        for run_id in await runs_of(world) - {one.run_id for one in waiting}:
            with pytest.raises(Overloaded, match=r"`max_open_questions_per_role` allows \(2\); have some answered"):
                await world.deployment.advance(TENANT, run_id)
        denied = await world.approve(waiting[0].run_id, "denied")
        assert denied.state == "rejected"
        left = sorted(await runs_of(world) - {one.run_id for one in waiting})
        assert (await world.deployment.advance(TENANT, left[0])).state == "waiting"
        with pytest.raises(Overloaded):
            await world.deployment.advance(TENANT, left[1])
        assert (await world.approve(left[0])).state == "completed"
        await assert_replays(world, left[0])

    in_world(tmp_path, play, stores=stores, pack=None)


def test_a_call_of_a_session_waits_for_room_and_is_then_asked_about(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        at_most(world, max_open_questions_per_role=1)
        gates = [await refund_session(world, f"s{number}", 5_000 + number) for number in range(2)]
        for number, gate in enumerate(gates):
            await read_first(gate, 5_000 + number)
        first = await gates[0].call(REFUND, refund_args(5_000), call_id="pay")
        assert isinstance(first, Waiting)
        for _ in range(3):
            with pytest.raises(Overloaded):
                await gates[1].call(REFUND, refund_args(5_001), call_id="pay")
        await world.approve(gates[0].run_id, "denied")
        assert isinstance(await gates[1].call(REFUND, refund_args(5_001), call_id="pay"), Waiting)
        await world.approve(gates[1].run_id)
        assert isinstance(await gates[1].call(REFUND, refund_args(5_001), call_id="pay"), Done)
        await assert_replays(world, (await gates[1].finish("approved")).run_id)

    in_world(tmp_path, play, pack=chosen_by_agent)


def limited(begin: Any, limits: str) -> Any:
    async def made(path: Path) -> None:
        await begin(path)
        with (path / "contextos.toml").open("a") as settings:
            settings.write(f"\n{limits}")

    return made


def test_over_http_a_session_too_many_says_what_to_do(tmp_path: Path) -> None:
    with http_face(tmp_path, limited(begin_deploys, SESSIONS)) as face:
        assert [opened(face, f"s{number}").status_code for number in range(2)] == [201, 201]
        refused = opened(face, "s2")
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        assert "finish or cancel some" in refused.json()["detail"]
        assert face.send("POST", "/v1/sessions/s0/finish", json={"outcome": "denied"}, **ACME).status_code == 200
        assert opened(face, "s3").status_code == 201


def test_over_http_a_question_too_many_says_what_to_do(tmp_path: Path) -> None:
    with http_face(tmp_path / "runs", limited(begin_refunds, QUESTIONS)) as face:
        for _ in range(2):
            face.waiting_run()
        refused = face.send("POST", "/v1/runs", json=face.request("next"))
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert "have some answered" in refused.json()["detail"]
    with http_face(tmp_path / "sessions", limited(begin_deploys, QUESTIONS.replace("2", "1"))) as face:
        for number, status in enumerate((202, 429)):
            opened(face, f"s{number}")
            call(face, f"s{number}", "ci_status", {"service": "checkout"}, "ci")
            call(face, f"s{number}", "impact", WHERE, "impact")
            assert call(face, f"s{number}", "rollback", WHERE, "rollback").status_code == status


def test_over_mcp_a_session_too_many_says_what_to_do(tmp_path: Path) -> None:
    workspace = refund_workspace(tmp_path / "shop")
    settings = workspace / "contextos.toml"
    settings.write_text(settings.read_text("utf-8") + f"\n{SESSIONS.replace('2', '1')}")

    async def play(client: Any) -> None:
        assert not (await client.call_tool(LOOKUP, ORDER)).is_error

    with_client(stdio(workspace, "s1"), play)
    more = stdio(workspace, "s2")
    served = subprocess.run([more.command, *more.args], stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    assert served.returncode == 4
    assert b"finish or cancel some" in served.stderr
