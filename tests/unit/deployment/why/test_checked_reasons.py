"""Reasons of verified runs quote the rules that they are pinned to; a fault is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contextos.deployment.queries import rationales
from contextos.deployment.queries.checked_run import read_checked
from contextos.deployment.why import checked_reasons as asked
from contextos.errors import Integrity, InvalidInput
from tests.world import TENANT, TestWorld, open_world, request, run


async def text_of(world: TestWorld, run_id: str, tool: str | None = None) -> tuple[str, str | None]:
    found = await read_checked(world.stores.tenant(TENANT), TENANT, world.keys, run_id)
    reasons, fault = await asked.checked_reasons(found, world.deployment.catalog(TENANT), tool)
    return "\n".join(f"{one.text} #{one.entry}" for one in reasons), fault


def test_a_denial_names_rule_words_and_the_facts_that_decided(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(150_000, "req_1"))).run_id
        text, fault = await text_of(world, run_id, "adp_payments.issue_refund")
        assert fault is None
        assert "above INR 100000 it is no support matter" in text
        assert "R_ABOVE_LIMIT read `args.amount_inr`, which was 150000 #" in text
        assert "adp_orders.lookup" not in text
        with pytest.raises(InvalidInput, match="did you mean"):
            await text_of(world, run_id, "adp_payments.isue_refund")

    run(act())


def test_a_pack_that_does_not_verify_is_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise Integrity("the pack was altered")

    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(150_000, "req_1"))).run_id
        monkeypatch.setattr(asked, "pinned_artifacts", broken)
        text, fault = await text_of(world, run_id)
        assert fault == "the pack was altered"
        assert "R_ABOVE_LIMIT" in text, "the journal names it"
        assert "no support matter" not in text

    assert asked.pinned_artifacts is rationales.pinned_artifacts
    run(act())


def test_a_run_that_does_not_verify_has_the_reasons_that_can_be_read_and_its_fault(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(900, "req_1"))).run_id
        found = await read_checked(world.stores.tenant(TENANT), TENANT, world.keys, run_id)
        altered = replace(found, fault="entry 3 was altered", entries=[found.entries[0]._replace(body=b"{")])
        catalog = world.deployment.catalog(TENANT)
        assert await asked.checked_reasons(altered, catalog) == ((), "entry 3 was altered")

    run(act())
