"""G160: a reference to an agent's token counts only if the directory lists it for this agent, at every door.

The attacker is a caller who names another reference, a token itself, or what the record says of a refused one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.identity import AgentIdentity
from contextos.deployment.preview import preview
from contextos.errors import ApprovalRefused, ConflictingRequest, ContextOSError, InvalidInput
from tests.http_face import http_face
from tests.sessions import in_world, refund_session
from tests.world import TENANT, TestWorld, open_world, request, run

TOKEN = "tok_agent_92"
FORGED = ["tok_agent_93", "eyJhbGciOiJFZERTQSJ9.e30.c2ln", "[redacted:token]", "[redacted:agent_token]", TOKEN + " "]


def listing(token: str | None) -> Any:
    def change(tenant: dict[str, Any]) -> None:
        for agent in tenant["agents"]:
            agent.pop("token_ref", None)
            if token is not None:
                agent["token_ref"] = token

    return change


def naming(token: str | None, request_id: str = "req_1", amount: int = 900) -> dict[str, Any]:
    body = request(amount, request_id)
    body["agent"] |= {"token_ref": token} if token is not None else {}
    return body


async def recorded(world: TestWorld, run_id: str) -> str:
    return "".join(str(one.body) for one in await world.deployment.ports.stores.tenant(TENANT).read(run_id))


@pytest.mark.parametrize("token", FORGED)
@pytest.mark.parametrize("listed", [TOKEN, None])
def test_another_reference_ends_the_run_with_the_reason_and_is_not_kept(
    tmp_path: Path, token: str, listed: str | None
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.edit_directory(listing(listed))
        view = await world.invoke(naming(token))
        record = view.record or {}
        [failure] = record["rationale"]["failures"]
        assert (record["status"], failure["code"], failure["facts"]) == (
            "REJECTED",
            "identity_refused",
            ["agent.token_ref"],
        )
        assert ("leave it out" in failure["detail"], TOKEN in failure["detail"]) == (True, False)
        kept = await recorded(world, view.run_id)
        assert token.startswith("[") or token not in kept
        again = await world.invoke(naming(token))
        assert (again.run_id, world.refunds()) == (view.run_id, [])
        found = await preview(world.deployment, json.dumps(naming(token)))
        assert [one.code for one in found.failures] == ["identity_refused"]
        await world.aclose()

    run(go())


def test_what_is_recorded_is_what_was_verified(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.edit_directory(listing(TOKEN))
        for number, stated in enumerate((TOKEN, None)):
            view = await world.invoke(naming(stated, f"req_{number}"))
            assert view.state == "completed"
            entries = await world.deployment.ports.stores.tenant(TENANT).read(view.run_id)
            known = next(read_body(one) or {} for one in entries if one.kind == "identity.resolved")
            assert known["principals"]["agent"]["token_ref"] == TOKEN
            received = (read_body(entries[0]) or {})["request"]["agent"]
            assert received.get("token_ref") == stated
        await world.aclose()

    run(go())


def test_a_request_that_is_sent_again_with_another_reference_gets_nothing(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.edit_directory(listing(TOKEN))
        view = await world.invoke(naming(TOKEN))
        with pytest.raises(ConflictingRequest, match="token_ref"):
            await world.invoke(naming("tok_agent_93"))
        world.edit_directory(listing("tok_agent_93"))
        assert (await world.invoke(naming("tok_agent_93"))).run_id == view.run_id, "another token of the same agent"
        await world.aclose()

    run(go())


def test_a_session_is_opened_and_found_with_the_listed_reference_only(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        world.edit_directory(listing(TOKEN))
        own = request(900, "x")["agent"]

        def agent(token: str) -> AgentIdentity:
            return AgentIdentity.model_validate({**own, "token_ref": token})

        with pytest.raises(InvalidInput, match=r"agent\.token_ref"):
            await refund_session(world, "ses_0", 900, agent=agent("tok_agent_93"))
        gate = await refund_session(world, "ses_1", 900, agent=agent(TOKEN))
        with pytest.raises(ConflictingRequest, match="token_ref"):
            await refund_session(world, "ses_1", 900, agent=agent("tok_agent_93"))
        assert (await refund_session(world, "ses_1", 900, agent=agent(TOKEN))).run_id == gate.run_id

    in_world(tmp_path, play)


def test_a_question_is_void_once_the_directory_lists_another_token(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.edit_directory(listing(TOKEN))
        asked = await world.invoke(naming(TOKEN, amount=4200))
        world.edit_directory(listing("tok_agent_93"))
        with pytest.raises(ApprovalRefused, match="the requester or the agent changed"):
            await world.approve(asked.run_id)
        assert world.refunds() == []
        await world.aclose()

    run(go())


@pytest.mark.parametrize("listed", ["[redacted:agent_token]", "two words", "", "t" * 257])
def test_a_directory_cannot_list_what_a_refused_one_is_recorded_as(tmp_path: Path, listed: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.edit_directory(listing(listed))
        with pytest.raises(ContextOSError, match="token_ref"):
            await world.invoke(naming("tok_agent_93"))
        await world.aclose()

    run(go())


def test_over_http_another_reference_is_refused_too(tmp_path: Path) -> None:
    with http_face(tmp_path) as face:
        sent = face.send("POST", "/v1/runs", json=naming("tok_agent_93") | {"mode": "batch"})
        assert sent.json()["record"]["rationale"]["failures"][0]["facts"] == ["agent.token_ref"]
