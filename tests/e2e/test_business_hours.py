"""Rules that read the clock: judged when a call is asked for and right before it is made, and replayed as recorded."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

import contextos
from contextos.contracts.envelopes.policy import BusinessHours
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.errors import InvalidArtifact
from tests.policies import leveled, policy, rule, var
from tests.sessions import (
    EVAL,
    LOOKUP,
    REFUND,
    assert_replays,
    chosen_by_agent,
    in_world,
    read_first,
    refund_args,
    refund_session,
)
from tests.world import TENANT, TestWorld

OFFICE = {
    "zone": "Europe/Berlin",
    "days": ["mon", "tue", "wed", "thu", "fri"],
    "opens": "09:00",
    "closes": "17:00",
    "holidays": ["2026-10-27"],
}


def at(text: str, zone: str = "Europe/Berlin") -> int:
    """A time by the clock of a zone in Unix microseconds."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1_000_000


def closed_denies(tool: str = REFUND) -> Any:
    def change(pack: dict[str, Any]) -> None:
        chosen_by_agent(pack)
        bundle = pack["policy_layer"]["policy_bundles"][0]
        bundle["business_hours"] = {"office": OFFICE}
        bundle["policy_dsl"]["rules"].append(
            {
                "rule_id": "R_CLOSED",
                "applies_to": {"capability": tool},
                "if": {"!": [{"var": "clock.office.open"}]},
                "then": {"allow": False},
                "rationale": "the office is closed",
            }
        )

    return change


@pytest.mark.parametrize(
    ("time", "made"),
    [
        ("2026-10-26T08:59:30", False),
        ("2026-10-26T09:00:30", True),
        ("2026-10-26T16:59:00", True),
        ("2026-10-26T17:00:01", False),
        ("2026-10-27T12:00:00", False),  # a holiday
        ("2026-10-31T12:00:00", False),  # a Saturday
    ],
)
def test_a_write_is_made_in_business_hours_alone(tmp_path: Path, time: str, made: bool) -> None:
    async def play(world: TestWorld) -> None:
        world.clock.at_us = at(time)
        gate = await refund_session(world, "ses_hours", 900)
        await read_first(gate, 900)
        answer = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(answer, Done if made else Refused), answer
        if isinstance(answer, Refused):
            assert "R_CLOSED" in answer.reasons[0].detail
        assert bool(world.refunds()) is made
        await gate.finish("approved" if made else "denied")
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play, pack=closed_denies())


def test_a_write_that_was_approved_in_time_and_is_made_too_late_is_judged_anew(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        world.clock.at_us = at("2026-10-26T16:50:00")
        gate = await refund_session(world, "ses_late", 4200)
        await read_first(gate, 4200)
        assert isinstance(await gate.call(REFUND, refund_args(4200), call_id="pay"), Waiting)
        world.clock.at_us = at("2026-10-26T16:59:30")
        await world.answer(gate.run_id)
        world.clock.at_us = at("2026-10-26T17:01:00")
        answer = await gate.call(REFUND, refund_args(4200), call_id="pay")
        assert isinstance(answer, Refused), answer
        assert "R_CLOSED" in answer.reasons[0].detail
        assert world.refunds() == []
        await gate.finish("denied")
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play, pack=closed_denies())


def test_a_read_can_be_bound_to_the_clock_and_other_calls_record_nothing_of_it(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        world.clock.at_us = at("2026-10-31T12:00:00")
        gate = await refund_session(world, "ses_read")
        assert isinstance(await gate.call(EVAL, {"order_id": "ord_881", "amount_inr": 4200}, call_id="a"), Refused)
        assert isinstance(await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="b"), Done)
        entries = await world.stores.tenant(TENANT).read(gate.run_id)
        assert [entry.key for entry in entries if entry.kind == "history.read"] == ["before/1/s2"]

    in_world(tmp_path, play, pack=closed_denies(EVAL))


def hours(**more: Any) -> BusinessHours:
    return BusinessHours.model_validate({**OFFICE, **more})


def test_summer_time_counts_and_the_hour_that_comes_twice_is_one_by_the_wall() -> None:
    winter, summer = at("2026-01-05T08:00:00", "UTC"), at("2026-07-06T08:00:00", "UTC")
    assert (hours().at(winter)["hour"], hours().at(summer)["hour"]) == (9, 10)
    for utc in ("2026-10-25T00:30:00", "2026-10-25T01:30:00"):
        assert hours().at(at(utc, "UTC")) | {"minute": 30} == {
            "weekday": "sun",
            "hour": 2,
            "minute": 30,
            "date": "2026-10-25",
            "holiday": False,
            "open": False,
        }


def test_the_date_is_that_of_the_zone() -> None:
    assert hours(zone="Pacific/Kiritimati").at(at("2026-10-26T11:00:00", "UTC"))["date"] == "2026-10-27"
    assert hours(opens="00:00", closes="24:00").at(at("2026-10-26T23:59:59"))["open"] is True


@pytest.mark.parametrize(
    "wrong",
    [
        {"opens": "17:00", "closes": "09:00"},
        {"opens": "9:00"},
        {"closes": "24:01"},
        {"days": []},
        {"days": ["monday"]},
        {"holidays": ["2026-02-30"]},
        {"holidays": ["20261225"]},
        {"zone": "../../etc/passwd"},
        {"zone": None},
    ],
)
def test_hours_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        hours(**wrong)


@pytest.mark.parametrize(
    ("declared", "condition", "code"),
    [
        ({"office": {**OFFICE, "zone": "Europe/Berln"}}, var("clock.office.open"), "unknown_zone"),
        ({"office": {**OFFICE, "zone": "localtime"}}, var("clock.office.open"), "unknown_zone"),
        ({}, var("clock.office.open"), "unknown_fact"),
        ({}, {">": [var("clock.hour"), 9]}, "unknown_fact"),
        ({"office": OFFICE}, var("clock.office.opened"), "unknown_fact"),
        ({"office": OFFICE}, {">": [var("clock.office.weekday"), 9]}, "type_mismatch"),
        ({"office": OFFICE}, {"==": [var("clock.office.weekday"), "monday"]}, "no_such_value"),
    ],
)
def test_lint_names_what_is_wrong(declared: dict[str, Any], condition: Any, code: str) -> None:
    with pytest.raises(InvalidArtifact) as refused:
        policy(leveled(rule("R_CLOCK", condition, allow=False), business_hours=declared))
    assert code in {problem.code for problem in refused.value.problems}, refused.value.problems


def test_the_short_form_reads_the_clock_of_a_zone_that_it_states() -> None:
    @contextos.write(risk="irreversible", idempotency="keyed")
    def pay(cents: int, key: contextos.Key) -> bool:
        """Pay."""
        return bool(key)

    alone = {"tools": ["pay"], "bounds": {"cents": {"min": 1, "max": 100}}, "when": "clock.office.open"}
    stated: dict[str, Any] = {"version": "1.0.0", "tenant": "acme", "who": ["clerk"], "auto_approve": [alone]}
    bank = contextos.toolset("bank", [pay])
    made = contextos.pack("payments", tools=[bank], business_hours={"office": OFFICE}, **stated)
    (bundle,) = made.expansion.pack.policy_layer.policy_bundles
    assert bundle.business_hours == {"office": hours()}
    with pytest.raises(InvalidArtifact, match="declare `business_hours`"):
        contextos.pack("payments", tools=[bank], **stated)


def test_two_bundles_do_not_declare_one_name_differently() -> None:
    one = leveled(rule("R_A", {"==": [1, 1]}), business_hours={"office": OFFICE})
    other = {"office": {**OFFICE, "zone": "Asia/Tokyo"}}
    two = leveled(rule("R_B", {"==": [1, 1]}), bundle_id="POLICY_B", business_hours=other)
    with pytest.raises(InvalidArtifact, match="differently"):
        policy(one, two)
