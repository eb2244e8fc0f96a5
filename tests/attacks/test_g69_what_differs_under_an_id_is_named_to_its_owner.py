"""An id that is used again for something else: its owner learns which member differs, and what it was."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from contextos.deployment.gate.opening import session_tools
from contextos.errors import ConflictingRequest
from tests.sessions import LOOKUP, in_world, refund_session
from tests.world import TENANT, TestWorld, open_world, request, run

CHANGED: dict[str, tuple[dict[str, Any], str, str]] = {
    "the message": ({"message": "Another task."}, "/message", '`"The first task."`'),
    "one fact": ({"context": {"order_id": "ord_890", "n": 1}}, "/context/order_id", '`"ord_881"`'),
    "a fact more": ({"context": {"order_id": "ord_881", "n": 1, "x": 2}}, "/context/x", "absent"),
    "a number that is a flag": ({"context": {"order_id": "ord_881", "n": True}}, "/context/n", "`1`"),
    "the tools": ({"tools": [LOOKUP]}, "/tools", "absent"),
}
FIRST: dict[str, Any] = {"message": "The first task.", "context": {"order_id": "ord_881", "n": 1}}


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database").app if request.param == "postgresql" else request.param)


@pytest.mark.parametrize("what", CHANGED)
def test_a_session_that_is_opened_otherwise_says_what_differs_and_what_it_was(what: str, tmp_path: Path) -> None:
    change, place, before = CHANGED[what]

    async def play(world: TestWorld) -> None:
        await refund_session(world, "ses_mine", **FIRST)
        await refund_session(world, "ses_mine", **FIRST)
        with pytest.raises(ConflictingRequest) as refused:
            await refund_session(world, "ses_mine", **{**FIRST, **change})
        (problem,) = refused.value.problems
        assert problem.pointer == place
        assert problem.detail == f"`{place}` was {before} when the session `ses_mine` was opened"

    in_world(tmp_path, play)


@pytest.mark.parametrize("who", [{"user": "usr_772"}, {"user": "usr_772", "message": "Guess."}])
def test_another_user_learns_that_the_name_is_another_users_and_nothing_of_it(
    who: dict[str, Any], tmp_path: Path
) -> None:
    async def play(world: TestWorld) -> None:
        await refund_session(world, "ses_mine", **FIRST)
        with pytest.raises(ConflictingRequest) as refused:
            await refund_session(world, "ses_mine", **{**FIRST, **who})
        (problem,) = refused.value.problems
        assert (problem.pointer, problem.detail) == (
            "/user",
            "the user was another one when the session `ses_mine` was opened",
        )
        with pytest.raises(ConflictingRequest, match="the user was another one"):
            await session_tools(world.deployment, TENANT, "ses_mine", user="usr_772", agent="agt_support")

    in_world(tmp_path, play)


MEMBERS: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "/input/message": (("input", "message"), "another"),
    "/input/context/refund_amount": (("input", "context", "refund_amount"), 901),
    "/input/context/a~1b": (("input", "context", "a/b"), 1),
    "/input/locale": (("input", "locale"), "de-DE"),
    "/context_pack_refs/0": (("context_pack_refs", 0), "ctxpack.other@1.0.0"),
    "/mode": (("mode",), "batch"),
    "/user/tenure_days": (("user", "tenure_days"), 1),
    "/runtime/max_tool_calls": (("runtime", "max_tool_calls"), 1),
}


def changed(body: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    body = copy.deepcopy(body)
    at: Any = body
    for step in path[:-1]:
        at = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
    at[path[-1]] = value
    return body


def test_each_member_of_a_request_that_differs_is_named_by_its_pointer(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        first = request(900, "req_1")
        await world.invoke(first)
        for place, (path, value) in MEMBERS.items():
            with pytest.raises(ConflictingRequest) as refused:
                await world.deployment.invoke(changed(first, path, value))
            assert place in [one.pointer for one in refused.value.problems], place
            assert all(one.detail.startswith(f"`{one.pointer}` was ") for one in refused.value.problems)
        both = changed(changed(first, *MEMBERS["/input/message"]), *MEMBERS["/mode"])
        with pytest.raises(ConflictingRequest) as refused:
            await world.deployment.invoke(both)
        assert [one.pointer for one in refused.value.problems] == ["/input/message", "/mode"]
        await world.aclose()

    run(act())


def test_what_is_redacted_is_not_shown_in_clear(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        card = "4111 1111 1111 1111"
        first = changed(request(900, "req_1"), ("input", "message"), f"Refund to the card {card}.")
        await world.invoke(first)
        with pytest.raises(ConflictingRequest) as refused:
            await world.deployment.invoke(changed(first, ("input", "context", "x"), 1))
        assert [one.pointer for one in refused.value.problems] == ["/input/context/x"]
        with pytest.raises(ConflictingRequest) as refused:
            await world.deployment.invoke(changed(first, ("input", "message"), "Nothing."))
        assert card not in str(refused.value)

    run(act())


def test_a_call_id_that_is_used_for_another_call_names_the_argument(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_mine")
        await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look")
        with pytest.raises(ConflictingRequest) as refused:
            await gate.call(LOOKUP, {"order_id": "ord_890"}, call_id="look")
        (problem,) = refused.value.problems
        assert (problem.pointer, problem.code) == ("/args/order_id", "conflicting_call")
        assert '"ord_881"' in problem.detail
        with pytest.raises(ConflictingRequest, match=r'`/tool` was `"adp_orders\.lookup"`'):
            await gate.call("adp_orders.other", {"order_id": "ord_881"}, call_id="look")

    in_world(tmp_path, play)
