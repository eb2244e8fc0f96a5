"""What is signed of an act elsewhere is what the act then checks, and reading it changes nothing."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contextos.deployment.acts.act import ActProposal, Assertions
from contextos.errors import ApprovalRefused, InvalidInput
from contextos.service.acts import MAX_AHEAD_S, MAX_STATED_S, act_document, check_stated_at, done_with, signer_elsewhere
from contextos.service.facts import Facts, KnownFact, StatedFact
from contextos.trust.approvals.acts import ACT_TYP, sign_act
from contextos.trust.identity.jws import signing_input
from contextos.trust.seal import listed_key
from tests.world import OPERATOR, OPERATOR_KEY, TENANT, TestWorld, open_world, run

CUSTOMER, VERIFIED = "customer:cus_77", "identity_verified"
BY = signer_elsewhere(OPERATOR)


async def replacing(world: TestWorld, value: bool) -> ActProposal[KnownFact]:
    """An act of two statements: a fact ends, and another begins."""
    fact = {"subject": CUSTOMER, "predicate": VERIFIED, "value": value, "source": "artifact:kyc_1#rev_1"}
    stated = StatedFact(**fact, integrity="trusted", classification="CONFIDENTIAL", observed_at_us=1)
    return await Facts(world.deployment).propose_replacement(TENANT, stated, by=BY)


def token_of(world: TestWorld, said: Mapping[str, Any], at_s: int | None = None) -> str:
    """The token of the operator, signed at `at_s`, or now."""
    now_s = world.deployment.ports.clock.now_us() // 1_000_000
    signed = signing_input(listed_key(OPERATOR_KEY)["kid"], ACT_TYP, said, now_s if at_s is None else at_s)
    signature = Ed25519PrivateKey.from_private_bytes(OPERATOR_KEY).sign(signed)
    return f"{signed.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def test_each_statement_of_an_act_is_signed_and_the_act_is_done_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await open_world(tmp_path)
        app, before = world.deployment, await world.stores.graph(TENANT).head()
        document = await act_document(app, TENANT, await replacing(world, False))
        said = [one.statement for one in document.statements]
        assert [one["kind"] for one in said] == ["graph.written", "graph.withdrawn"]
        assert {kid for one in document.statements for kid in one.signing_inputs} == {listed_key(OPERATOR_KEY)["kid"]}
        assert await world.stores.graph(TENANT).head() == before
        tokens = [token_of(world, one) for one in said]
        with pytest.raises(InvalidInput) as other:
            await done_with(app, await replacing(world, False), tokens[:1])
        assert other.value.problems[0].code == "other_statements"
        for wrong in (tokens[:1] * 2, ["", ""], ["a.b.c", tokens[0]]):
            with pytest.raises(ApprovalRefused) as refused:
                await done_with(app, await replacing(world, False), wrong)
            assert refused.value.reason == "assertion_invalid"
        assert await world.stores.graph(TENANT).head() == before
        fact = await done_with(app, await replacing(world, False), tokens[::-1])
        assert ([fact], False) == ([*await Facts(app).get(TENANT, CUSTOMER, VERIFIED)], fact.value)
        same = await replacing(world, False)
        assert (await act_document(app, TENANT, same)).statements == []
        assert await done_with(app, same, tokens) == fact
        await world.aclose()

    run(scenario())


def test_tokens_of_one_act_are_not_those_of_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await open_world(tmp_path)
        tokens = [token_of(world, one) for one in (await replacing(world, False)).statements]
        other = await Facts(world.deployment).propose_retraction(
            TENANT, CUSTOMER, VERIFIED, source="artifact:kyc_1#rev_1", by=BY
        )
        with pytest.raises((ApprovalRefused, InvalidInput)):
            await done_with(world.deployment, other, tokens)
        with pytest.raises(ApprovalRefused):
            await done_with(world.deployment, other, tokens[: len(other.statements)])
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


async def told(assertions: Assertions) -> Assertions:
    return assertions


def test_a_token_counts_for_a_quarter_of_an_hour_from_when_its_signer_says_that_they_signed(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await open_world(tmp_path)
        app, act = world.deployment, ActProposal(BY, (SAID,), told)
        now_s = app.ports.clock.now_us() // 1_000_000
        for at_s in (now_s, now_s + MAX_AHEAD_S, now_s - MAX_STATED_S + 1):
            token = token_of(world, SAID, at_s)
            assert await done_with(app, act, [token]) == [{"kind": "jws", "token": token}]
        for at_s in (now_s + MAX_AHEAD_S + 1, now_s - MAX_STATED_S - 1, 0):
            with pytest.raises(ApprovalRefused) as refused:
                await done_with(app, act, [token_of(world, SAID, at_s)])
            assert refused.value.reason == "assertion_expired"
        with pytest.raises(ApprovalRefused, match="does not say"):
            await done_with(app, act, [sign_act(OPERATOR_KEY, "key_1", SAID)])
        # What is no token of this statement is refused by the check of the signature.
        assert await done_with(app, act, ["a.b.c"]) == [{"kind": "jws", "token": ""}]
        await world.aclose()

    run(scenario())


def test_what_comes_to_a_refusal_without_a_signature_has_no_statement(tmp_path: Path) -> None:
    async def refuse(_assertions: Assertions) -> None:
        raise ApprovalRefused("not_waiting", "the run has ended")

    async def scenario() -> None:
        world = await open_world(tmp_path)
        with pytest.raises(ApprovalRefused, match="has ended"):
            await act_document(world.deployment, TENANT, ActProposal(BY, (), refuse))
        await world.aclose()

    run(scenario())
