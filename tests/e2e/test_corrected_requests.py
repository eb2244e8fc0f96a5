"""A request that was refused is sent again, corrected, under its own id; the record of both stays and verifies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.cli import run_command_line
from contextos.contracts.documents.collection import find_documents
from contextos.contracts.ports.gates import Refused
from contextos.deployment.gate.opening import recorded_request
from contextos.deployment.queries import run_names
from contextos.deployment.queries.run_names import MAX_REQUESTS_OF_AN_ID
from contextos.errors import ConflictingRequest
from contextos.testing import in_memory
from contextos.workspace import App
from tests.deployers import TENANT as DEPLOYERS
from tests.deployers import people
from tests.http_face import TENANT, begin_refunds


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    asyncio.run(begin_refunds(path))
    return path


def requested(shop: Path) -> dict[str, Any]:
    return json.loads((shop / "requests" / "large.json").read_text("utf-8"))


def test_each_correction_is_a_run_of_its_own_and_all_of_them_verify(shop: Path) -> None:
    right = requested(shop)
    user = right["user"]
    wrong = [
        {**right, "user": {**user, "role": "nobody"}},
        {**right, "context_pack_refs": ["ctxpack.nothing@1.0.0"]},
        {**right, "user": {name: value for name, value in user.items() if name != "delegation"}},
    ]

    async def sent(app: App) -> list[Any]:
        views = [await app.deployment.invoke(one) for one in (*wrong, right, right)]
        assert (await app.deployment.invoke(wrong[0])).run_id == views[0].run_id, "the same request is the same run"
        return views

    async def act() -> list[Any]:
        async with contextos.open(shop) as app:
            return await sent(app)

    views = asyncio.run(act())
    assert [one.state for one in views] == ["refused", "rejected", "rejected", "waiting", "waiting"]
    assert len({one.run_id for one in views}) == 4
    lacks = views[2].record["rationale"]["failures"][0]
    assert (lacks["code"], "has delegated nothing" in lacks["detail"]) == ("tool_not_in_manifest", True)
    assert run_command_line(["verify", "--tenant", TENANT, "-w", str(shop)]) == 0
    for one in views[:3]:
        assert run_command_line(["replay", one.run_id, "--tenant", TENANT, "-w", str(shop)]) == 0


def test_two_corrections_at_once_are_one_run(shop: Path) -> None:
    right = requested(shop)

    async def act() -> set[str]:
        async with contextos.open(shop) as app:
            await app.deployment.invoke({**right, "user": {"user_id": "nobody"}})
            views = await asyncio.gather(*(app.deployment.invoke(right) for _ in range(4)))
            return {one.run_id for one in views}

    assert len(asyncio.run(act())) == 1


@pytest.mark.parametrize("calls", [True, False])
def test_a_session_that_its_agent_finished_keeps_its_id(calls: bool) -> None:
    @contextos.write(risk="reversible", idempotency="keyed", destinations=[])
    def pay(name: str, key: contextos.Key) -> bool:
        """Pay."""
        return bool(name and key)

    stated: dict[str, Any] = {"version": "1.0.0", "tenant": DEPLOYERS, "who": ["deployer"], "approver": "approver"}
    pack = contextos.pack("ci", tools=[contextos.toolset("ci", [pay])], **stated)
    with in_memory(packs=[pack], directory=people()) as app:
        who = {"session": "s", "user": "ana", "token": "tok_ana", "agent": "agt_deploy"}
        gate = app.gate(**who)
        if calls:
            assert isinstance(gate.call("ci.nothing", {"name": "web"}, call_id="1"), Refused)
        gate.finish("denied")
        with pytest.raises(ConflictingRequest, match="was opened"):
            app.gate(**who, context={"another": 1}).call("ci.pay", {"name": "web"}, call_id="2")


def test_a_request_of_which_something_came_keeps_its_id(shop: Path) -> None:
    right = requested(shop)

    async def act() -> None:
        async with contextos.open(shop) as app:
            await app.deployment.invoke(right)
            with pytest.raises(ConflictingRequest, match="was used last"):
                await app.deployment.invoke({**right, "input": {**right["input"], "message": "another"}})

    asyncio.run(act())


def test_a_session_that_was_refused_is_opened_again_under_its_name(shop: Path) -> None:
    """What differed then is not taken over: it was wrong."""
    right = requested(shop)

    async def act() -> dict[str, Any]:
        async with contextos.open(shop) as app:
            refused = {**right, "user": {"user_id": "nobody"}, "mode": "stream"}
            await app.deployment.invoke({**refused, "request_id": "s1", "session_id": "s1"})
            return {"known": await recorded_request(app.deployment, TENANT, "s1")}

    assert asyncio.run(act()) == {"known": None}


def test_a_refused_request_that_is_sent_again_after_its_correction_is_the_run_that_it_was(shop: Path) -> None:
    """Seed 962 of the simulator: the late copy of the first request made a third run."""
    right = requested(shop)

    async def act() -> None:
        async with contextos.open(shop) as app:
            wrong = [{**right, "user": {"user_id": f"nobody_{number}"}} for number in range(2)]
            first, second = [(await app.deployment.invoke(one)).run_id for one in wrong]
            assert first != second
            assert [(await app.deployment.invoke(one)).run_id for one in wrong] == [first, second]
            corrected = (await app.deployment.invoke(right)).run_id
            assert [(await app.deployment.invoke(one)).run_id for one in [*wrong, right]] == [first, second, corrected]

    asyncio.run(act())


def test_the_requests_with_one_id_are_as_many_as_two_reads_find(shop: Path) -> None:
    right = requested(shop)

    async def act() -> list[int]:
        async with contextos.open(shop) as app:
            reads: list[int] = []

            async def counted(*where: Any) -> Any:
                reads.append(1)
                return await find_documents(*where)

            for number in range(MAX_REQUESTS_OF_AN_ID):
                await app.deployment.invoke({**right, "user": {"user_id": f"nobody_{number}"}})
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(run_names, "find_documents", counted)
                with pytest.raises(ConflictingRequest, match="this id had its 16 requests: use a new one"):
                    await app.deployment.invoke(right)
            last = {**right, "user": {"user_id": f"nobody_{MAX_REQUESTS_OF_AN_ID - 1}"}}
            assert (await app.deployment.invoke(last)).state == "refused", "the same request is the same run"
            return reads

    assert 1 <= len(asyncio.run(act())) <= 2
