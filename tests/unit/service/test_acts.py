"""What an act signs is what the act then checks, and reading it changes nothing."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contextos.deployment.acts.act import Actor
from contextos.deployment.signing import SignStatement
from contextos.errors import ApprovalRefused, InvalidInput
from contextos.service.acts import (
    MAX_AHEAD_S,
    MAX_STATED_S,
    ActStatement,
    check_stated_at,
    signed_elsewhere,
    signed_with,
    statement_of,
    statements_of,
)
from contextos.service.facts import Facts
from contextos.trust.approvals.acts import ACT_TYP, sign_act
from contextos.trust.seal import listed_key
from tests.world import OPERATOR, OPERATOR_KEY, TENANT, TestWorld, open_world, run

CUSTOMER, VERIFIED = "customer:cus_77", "identity_verified"


def replacing(world: TestWorld, value: bool) -> object:
    """An act of two statements: a fact ends, and another begins."""

    async def act(by: Actor) -> object:
        return await Facts(world.deployment).replace(
            TENANT,
            CUSTOMER,
            VERIFIED,
            value,
            source="artifact:kyc_1#rev_1",
            integrity="trusted",
            classification="CONFIDENTIAL",
            observed_at_us=1,
            by=by,
        )

    return act


def token_of(world: TestWorld, said: ActStatement, at_s: int | None = None) -> str:
    """The token of the operator, signed at `at_s`, or now."""
    now_s = world.deployment.ports.clock.now_us() // 1_000_000
    signed = said.signing_input(listed_key(OPERATOR_KEY)["kid"], now_s if at_s is None else at_s)
    signature = Ed25519PrivateKey.from_private_bytes(OPERATOR_KEY).sign(signed)
    return f"{signed.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def test_each_statement_of_an_act_is_signed_and_the_act_is_done_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await open_world(tmp_path)
        act = replacing(world, False)
        before = await world.stores.graph(TENANT).head()
        said = await statements_of(OPERATOR, act)  # type: ignore[arg-type]
        assert [one.statement["kind"] for one in said] == ["graph.written", "graph.withdrawn"]
        assert await world.stores.graph(TENANT).head() == before
        tokens = [token_of(world, one) for one in said]
        with pytest.raises(InvalidInput) as other:
            await act(signed_elsewhere(world.deployment, OPERATOR, tokens[:1]))  # type: ignore[operator]
        assert other.value.problems[0].code == "other_statements"
        for wrong in (tokens[:1] * 2, ["", ""], ["a.b.c", tokens[0]]):
            with pytest.raises(ApprovalRefused) as refused:
                await act(signed_elsewhere(world.deployment, OPERATOR, wrong))  # type: ignore[operator]
            assert refused.value.reason == "assertion_invalid"
        assert await world.stores.graph(TENANT).head() == before
        await act(signed_elsewhere(world.deployment, OPERATOR, tokens[::-1]))  # type: ignore[operator]
        [fact] = await Facts(world.deployment).get(TENANT, CUSTOMER, VERIFIED)
        assert fact.value is False
        assert await statements_of(OPERATOR, act) == ()  # type: ignore[arg-type]
        await world.aclose()

    run(scenario())


def test_tokens_of_one_act_are_not_those_of_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await open_world(tmp_path)
        said = await statements_of(OPERATOR, replacing(world, False))  # type: ignore[arg-type]
        by = signed_elsewhere(world.deployment, OPERATOR, [token_of(world, one) for one in said])
        other = Facts(world.deployment).retract(TENANT, CUSTOMER, VERIFIED, source="artifact:kyc_1#rev_1", by=by)
        with pytest.raises((ApprovalRefused, InvalidInput)):
            await other
        await world.aclose()

    run(scenario())


def test_an_act_that_says_its_time_says_a_recent_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await open_world(tmp_path)
        now_us = world.deployment.ports.clock.now_us()
        check_stated_at(world.deployment, now_us)
        for at_us in (now_us + 1_000_000_000, now_us - (MAX_STATED_S + 60) * 1_000_000, 0):
            with pytest.raises(InvalidInput) as refused:
                check_stated_at(world.deployment, at_us)
            assert refused.value.problems[0].code == "not_now"
        await world.aclose()

    run(scenario())


SAID = {"kind": "run.retried", "actor": OPERATOR}


def test_an_act_of_one_statement_is_read_without_being_done_and_done_with_a_token() -> None:
    proofs = []

    async def act(sign: SignStatement) -> None:
        proofs.append(sign(SAID))

    said = run(statement_of(act))
    assert (said.typ, said.statement, proofs) == (ACT_TYP, SAID, [])


def test_a_token_counts_for_a_quarter_of_an_hour_from_when_its_signer_says_that_they_signed(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await open_world(tmp_path)
        now_s = world.deployment.ports.clock.now_us() // 1_000_000
        for at_s in (now_s, now_s + MAX_AHEAD_S, now_s - MAX_STATED_S + 1):
            token = token_of(world, ActStatement.of_act(SAID), at_s)
            assert signed_with(world.deployment, token)(SAID) == {"kind": "jws", "token": token}
        for at_s in (now_s + MAX_AHEAD_S + 1, now_s - MAX_STATED_S - 1, 0):
            with pytest.raises(ApprovalRefused) as refused:
                signed_with(world.deployment, token_of(world, ActStatement.of_act(SAID), at_s))(SAID)
            assert refused.value.reason == "assertion_expired"
        with pytest.raises(ApprovalRefused, match="does not say"):
            signed_with(world.deployment, sign_act(OPERATOR_KEY, "key_1", SAID))(SAID)
        # What is no token at all is refused by the check of the signature.
        assert signed_with(world.deployment, "a.b.c")(SAID) == {"kind": "jws", "token": "a.b.c"}
        await world.aclose()

    run(scenario())


def test_an_act_that_is_refused_before_it_is_signed_has_no_statement() -> None:
    async def refuse(_sign: SignStatement) -> None:
        raise ApprovalRefused("not_waiting", "the run has ended")

    with pytest.raises(ApprovalRefused, match="has ended"):
        run(statement_of(refuse))


def test_what_is_signed_names_the_key_the_type_and_the_time() -> None:
    header = ActStatement.of_act(SAID).signing_input("key_1", 1).partition(b".")[0]
    for said, kid, at_s in (("other+jws", "key_1", 1), (ACT_TYP, "key_2", 1), (ACT_TYP, "key_1", 2)):
        assert ActStatement.of_act(SAID, said).signing_input(kid, at_s).partition(b".")[0] != header
