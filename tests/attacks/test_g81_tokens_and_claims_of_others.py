"""G81: tokens in the place of references, claims of another run, and sessions opened with another token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.identity import UserClaims
from contextos.deployment.gate.opening import open_session, session_tools
from contextos.errors import ConflictingRequest
from contextos.runtime.environment import RunLimits
from tests.attacks.test_a06_nobody_acts_for_a_user_unasked import issue
from tests.attacks.test_a06_nobody_acts_for_a_user_unasked import token as delegation
from tests.sessions import in_world, refund_session
from tests.world import TENANT, TestWorld, open_world, request, run

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1c3JfNzcxIiwiYXVkIjoic2hvcCJ9.c2lnbmF0dXJlLXNpZ25hdHVyZQ"
TOKENS = [JWT, "00DA0000000KzzzzMAC!AQcAQH0dMHEXAMPLEzmpkb58urFRkgeBGsxL", "opaque"]


async def on_record(world: TestWorld, *run_ids: str) -> str:
    store = world.stores.tenant(TENANT)
    entries = [one for stream in ("index", "control", *run_ids) for one in await store.read(stream)]
    return "\n".join((one.body or b"").decode() + one.key for one in entries)


@pytest.mark.parametrize("sent", TOKENS)
@pytest.mark.parametrize("place", ["user", "agent"])
def test_a_token_in_the_place_of_its_reference_is_not_on_record(
    place: str, sent: str, stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        body = request(900, "req_token")
        (body["user"]["delegation"] if place == "user" else body["agent"])["token_ref"] = sent
        view = await world.invoke(body)
        assert view.state == "refused", "the directory lists no reference for the agent"
        assert sent not in await on_record(world, view.run_id)
        assert sent not in str(view.record)
        again = await world.invoke(body)
        assert again.run_id == view.run_id, "the same request is the same run"
        await world.aclose()

    run(go())


def test_a_claim_of_another_run_of_the_agent_refuses_the_run(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        first = await world.invoke(request(900, "req_first"))
        entries = await world.stores.tenant(TENANT).read(first.run_id)
        answers = [read_body(one) for one in entries if one.kind == "identity.resolved"]
        claim = answers[0]["claim"]  # type: ignore[index]
        assert claim["exp"] - claim["nbf"] == 60
        paid = len(world.refunds())
        body = request(900, "req_second")
        body["agent"]["identity_claim"] = claim
        view = await world.invoke(body)
        assert view.state == "refused"
        assert view.record is not None
        [failure] = view.record["rationale"]["failures"]
        assert (failure["code"], failure["facts"]) == ("identity_refused", ["agent.identity_claim"])
        assert "another run" in failure["detail"]
        assert len(world.refunds()) == paid
        await world.aclose()

    run(go())


@pytest.mark.parametrize("asked", [None, 5, 90])
def test_claims_live_as_long_as_the_deployment_asks(asked: int | None, tmp_path: Path) -> None:
    from tests.attacks.test_c18_a_claim_is_for_one_call import Listening, _said

    async def go() -> None:
        limits = RunLimits() if asked is None else RunLimits(claim_ttl_s=asked)
        world = await open_world(tmp_path, stores="sqlite", limits=limits)
        heard: list[tuple[str, str, str, str]] = []
        for name, adapter in list(world.adapters.items()):
            world.adapters[name] = Listening(adapter, heard)
        assert (await world.invoke(request(900, "req_1"))).state == "completed"
        assert heard
        assert {said["exp"] - said["nbf"] for *_, token in heard for said in [_said(token)]} == {asked or 60}
        await world.aclose()

    run(go())


def test_an_open_session_is_found_with_its_own_token_alone(stores: str, tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        mine, later, theirs = "tok_usr_771", "tok_usr_771_b", "tok_usr_772"
        issue(world, **{mine: delegation(), later: delegation(), theirs: delegation(subject="usr_772")})
        opened = await refund_session(world, "s1")
        assert (await refund_session(world, "s1")).run_id == opened.run_id
        body = request(4200, "s1")
        stated: dict[str, Any] = {"user": "usr_771", "agent": "agt_support", "context": body["input"]["context"]}
        assert (await open_session(world.deployment, TENANT, "s1", token=mine, **stated)).run_id == opened.run_id
        for other in (later, theirs, None):
            with pytest.raises(ConflictingRequest) as refused:
                await open_session(world.deployment, TENANT, "s1", token=other, **stated)
            assert refused.value.problems[0].pointer == "/token"
            with pytest.raises(ConflictingRequest):
                await session_tools(world.deployment, TENANT, "s1", token=other, **stated)
        body["user"]["delegation"]["token_ref"] = later
        with pytest.raises(ConflictingRequest, match="another `token`"):
            await refund_session(world, "s1", user=UserClaims.model_validate(body["user"]))

    in_world(tmp_path, play, stores=stores)
