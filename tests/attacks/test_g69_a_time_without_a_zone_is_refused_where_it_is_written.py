"""A time of a fact is read as RFC 3339 and kept in UTC, or refused where it is written; none counts as 1970."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from contextos.contracts.encoding.instants import unix_us, utc_time
from contextos.contracts.envelopes.identity import KnownDelegation
from contextos.contracts.ids import TIMESTAMP
from contextos.deployment.acts.facts import MAX_WRITER_AHEAD_US, write_facts
from contextos.errors import InvalidInput
from contextos.service.facts import Facts
from tests.world import TENANT, TestWorld, open_world, run

READ = {
    "2026-05-03T07:30:00Z": "2026-05-03T07:30:00Z",
    "2026-05-03T09:30:00+02:00": "2026-05-03T07:30:00Z",
    "2026-05-03T02:00:00-05:30": "2026-05-03T07:30:00Z",
    "2026-05-03t07:30:00z": "2026-05-03T07:30:00Z",
    "2026-05-03T07:30:00-00:00": "2026-05-03T07:30:00Z",
    "2026-05-03T09:30:00.123456789+02:00": "2026-05-03T07:30:00.123456789Z",
    "2026-01-01T00:30:00+01:00": "2025-12-31T23:30:00Z",
    "2016-12-31T23:59:60Z": "2017-01-01T00:00:00Z",
    "2017-01-01T01:59:60+02:00": "2017-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z": "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59.5Z": "1969-12-31T23:59:59.5Z",
}
REFUSED = (
    "",
    "yesterday",
    "1777887090",
    "2026-05-03",
    "2026-05-03T09:30:00",
    "2026-05-03 09:30:00Z",
    "2026-05-03T09:30Z",
    "2026-05-03T09Z",
    "20260503T093000Z",
    "2026-W18-7T09:30:00Z",
    "2026-05-03T09:30:00,5Z",
    "2026-05-03T09:30:00.Z",
    "2026-05-03T09:30:00.1234567890Z",
    "2026-05-03T09:30:00+0200",
    "2026-05-03T09:30:00+02",
    "2026-05-03T09:30:00+24:00",
    "2026-05-03T09:30:00+02:60",
    "2026-05-03T09:30:00Z ",
    "2026-05-03T09:30:00Z\n",
    "2026-05-03T24:00:00Z",
    "2026-05-03T09:60:00Z",
    "2026-05-03T09:30:60Z",
    "2026-05-03T23:59:61Z",
    "2026-02-29T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00",
    "9999-12-31T23:59:60Z",
    "12026-05-03T09:30:00Z",
    "+2026-05-03T09:30:00Z",
    "٢٠٢٦-05-03T09:30:00Z",
    "2026-05-03T09:30:00Z[Europe/Rome]",
)


def edge(observed: Any, value: str = "gold") -> dict[str, Any]:
    return {
        "src": "customer:cus_9",
        "predicate": "tier",
        "dst": "customer:cus_9",
        "value": value,
        "evidence_ref": "artifact:kyc_1#rev_1",
        "integrity": "trusted",
        "classification": "CONFIDENTIAL",
        "observed_at": observed,
    }


async def kept(world: TestWorld) -> list[Any]:
    found = await world.stores.graph(TENANT).step(["customer:cus_9"], "tier", at=99, limit=99)
    return [one["observed_at"] for one in found]


@pytest.mark.parametrize("text", READ)
def test_a_time_is_read_with_its_zone_and_has_one_form(text: str) -> None:
    assert utc_time(text) == READ[text]
    assert unix_us(text) == unix_us(READ[text])
    assert TIMESTAMP.fits(text) == (text == READ[text]), "what the runtime writes is in that form already"


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_could_mean_several_times_is_not_one(text: str) -> None:
    assert (utc_time(text), unix_us(text), TIMESTAMP.fits(text)) == (None, None, False)


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database").app if request.param == "postgresql" else request.param)


def test_a_fact_is_kept_with_its_time_in_utc_and_is_the_same_fact_in_every_spelling(
    tmp_path: Path, stores: str
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        for text in ("2026-05-03T09:30:00+02:00", "2026-05-03t07:30:00z", "2026-05-03T07:30:00Z"):
            await write_facts(world.deployment, TENANT, [], [edge(text)], by=world.actor())
        assert await kept(world) == ["2026-05-03T07:30:00Z"]
        await world.aclose()

    run(act())


@pytest.mark.parametrize("text", ["2026-05-03T09:30:00", "2026-05-03", "yesterday", ""])
def test_a_fact_without_a_zone_is_refused_with_its_place_and_the_form_to_write(
    text: str, tmp_path: Path, stores: str
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        before = await world.stores.graph(TENANT).head()
        with pytest.raises(InvalidInput) as refused:
            await write_facts(world.deployment, TENANT, [], [edge(1), edge(text)], by=world.actor())
        (problem,) = refused.value.problems
        assert (problem.pointer, problem.code) == ("/edges/1/observed_at", "not_a_time")
        assert "RFC 3339" in problem.remedy
        assert await world.stores.graph(TENANT).head() == before
        await world.aclose()

    run(act())


@pytest.mark.parametrize("form", ["number", "text"])
def test_a_fact_that_was_observed_later_than_now_is_refused(form: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        ahead = world.clock.at_us + 2 * MAX_WRITER_AHEAD_US
        observed = ahead if form == "number" else "9999-12-31T23:59:59Z"
        with pytest.raises(InvalidInput, match="lies ahead"):
            await write_facts(world.deployment, TENANT, [], [edge(observed)], by=world.actor())
        with pytest.raises(InvalidInput, match="lies ahead"):
            await Facts(world.deployment).set(
                TENANT,
                "customer:cus_9",
                "tier",
                "gold",
                source="artifact:kyc_1#rev_1",
                integrity="trusted",
                classification="CONFIDENTIAL",
                by=world.actor(),
                observed_at_us=ahead,
            )

    run(act())


def test_a_delegation_whose_end_is_in_milliseconds_is_refused() -> None:
    stated = {"subject": "u", "agent_id": "a", "expires_at": 1_780_000_000}
    KnownDelegation.model_validate(stated)
    with pytest.raises(ValidationError):
        KnownDelegation.model_validate(stated | {"expires_at": 1_780_000_000_000})
