"""A mined pack allows what was recorded, and refuses the wrong calls of a fixture that is older than the miner."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.deployment.queries.observations import Recording, SessionCall, read_sessions
from contextos.errors import InvalidInput
from contextos.packs.building import DeclaredPack
from contextos.packs.expansion import Expansion, expand
from contextos.packs.mining.backtest import backtest
from contextos.packs.mining.miner import MinedPack, mine
from contextos.workspace.in_memory import in_memory
from tests.observed.recording import INTERN, TENANT, USER, deployed, observing, open_gate, played
from tests.observed.shop import WRONG_CALLS, World, recorded_calls, tools_of

WRONG: list[dict[str, Any]] = json.loads(WRONG_CALLS.read_text("utf-8"))


@dataclass
class Mined:
    """The recording of the 500 calls, and the pack that was mined from it."""

    recording: Recording
    pack: MinedPack
    expansion: Expansion


def mined_from(recording: Recording) -> MinedPack:
    definitions = [tools_of(World([])).describe()]
    return mine(recording.sessions, definitions, name="shop.mined", version="0.2.0", tenant_id=TENANT, approver="lead")


@pytest.fixture(scope="module")
def mined() -> Mined:
    with deployed(observing(World([]))) as app:
        played(app, recorded_calls())
        recording = app.call(read_sessions, app.deployment.ports.stores.tenant(TENANT), TENANT, app.keys)
    pack = mined_from(recording)
    return Mined(recording, pack, expand(pack.declaration, [tools_of(World([])).describe()]))


@pytest.fixture(scope="module")
def enforced(mined: Mined) -> Iterator[tuple[Any, World]]:
    """The mined pack in force."""
    world = World([])
    tools = tools_of(world)
    expansion = expand(mined.pack.declaration, [tools.describe()])
    with deployed(DeclaredPack(mined.pack.declaration, expansion, (tools,))) as app:
        yield app, world


def test_the_mined_pack_allows_or_asks_about_all_500_recorded_calls(mined: Mined) -> None:
    definitions = [tools_of(World([])).describe()]
    judged = asyncio.run(backtest(mined.expansion.document, definitions, mined.recording.sessions, in_memory))
    assert Counter(one.verdict for one in judged) == {"allowed": 400, "ask": 100}
    assert {one.call.tool for one in judged if one.verdict == "ask"} == {"shop.refund", "shop.notify"}
    assert all(one.rules for one in judged if one.verdict == "ask")


@pytest.mark.parametrize("wrong", WRONG, ids=[one["name"] for one in WRONG])
def test_no_wrong_call_is_made(enforced: tuple[Any, World], wrong: dict[str, Any]) -> None:
    app, world = enforced
    user = INTERN if wrong.get("user") else USER
    gate = open_gate(app, f"wrong_{WRONG.index(wrong)}", user)
    answer = gate.call(wrong["tool"], wrong["args"], call_id="wrong")
    assert isinstance(answer, Waiting if wrong["verdict"] == "ask" else Refused), answer
    assert world.effects == []


def test_an_option_at_its_default_is_the_call_that_was_recorded(enforced: tuple[Any, World]) -> None:
    app, _ = enforced
    args = {"text": "parcel lost 7", "limit": 10}
    gate = open_gate(app, "at_its_default")
    assert isinstance(gate.call("shop.search_tickets", args, call_id="left_out"), Done)
    assert isinstance(gate.call("shop.search_tickets", {**args, "include_deleted": False}, call_id="stated"), Done)
    refused = gate.call("shop.search_tickets", {**args, "include_deleted": True}, call_id="other")
    assert isinstance(refused, Refused)


def test_more_than_20_of_them_are_denied_outright() -> None:
    assert sum(one["verdict"] == "deny" for one in WRONG) >= 20


def test_a_call_like_the_recorded_ones_is_made(enforced: tuple[Any, World]) -> None:
    app, world = enforced
    before = len(world.effects)
    gate = open_gate(app, "right")
    note = "seen by the agent, case 777"
    call = {"order_id": "ord_12345", "tag": "vip", "note": note}
    assert isinstance(gate.call("shop.tag_order", call, call_id="tag"), Done)
    assert len(world.effects) == before + 1
    world.effects.clear()


def test_a_role_gets_the_tools_that_it_used_and_not_those_of_another_role(mined: Mined) -> None:
    """In one intent a support agent looks up and refunds, and an intern looks up."""
    session = mined.recording.sessions[0]
    looked = next(call for call in session.calls if call.tool == "shop.find_order")
    refunded = next(call for call in session.calls if call.tool == "shop.refund")
    tagged = next(call for call in session.calls if call.tool == "shop.tag_order")
    intern = session.principals.user.model_copy(update={"user_id": INTERN, "role": "intern", "roles": ("intern",)})
    principals = session.principals.model_copy(update={"user": intern})
    other = replace(session, run_id="run_of_ivan", principals=principals, calls=[looked, tagged])
    pack = mined_from(Recording([replace(session, calls=[looked, refunded]), other]))
    expansion, world = expand(pack.declaration, [tools_of(World([])).describe()]), World([])
    with deployed(DeclaredPack(pack.declaration, expansion, (tools_of(world),))) as app:
        answers = {
            user: [type(open_gate(app, user, user).call(one.tool, one.args, call_id=one.call_id)) for one in calls]
            for user, calls in ((USER, (looked, tagged, refunded)), (INTERN, (looked, refunded, tagged)))
        }
    assert answers == {USER: [Done, Refused, Waiting], INTERN: [Done, Refused, Done]}
    assert len(world.effects) == 1
    notes = [" ".join(note) for place, note in pack.notes.items() if place[0] == "deny"]
    assert any("intern" in one and tagged.call_id in one for one in notes)


def test_each_entry_names_calls_that_it_came_from(mined: Mined) -> None:
    known = {f"{call.run_id}/{call.call_id}" for call in mined.recording.calls}
    for place, notes in mined.pack.notes.items():
        assert any(name in " ".join(notes) for name in known), place
    assert "NOT BOUNDED" not in str(mined.pack.notes)


def altered(recording: Recording, *calls: SessionCall) -> Recording:
    """A recording of one session with these calls alone."""
    return Recording([replace(recording.sessions[0], calls=calls)])


def test_nothing_is_mined_from_calls_that_no_tool_answered(mined: Mined) -> None:
    refused = [replace(call, status="refused") for call in mined.recording.calls[:3]]
    with pytest.raises(InvalidInput, match="3 left out: no tool answered it"):
        mined_from(altered(mined.recording, *refused))


def test_a_redacted_value_is_no_bound(mined: Mined) -> None:
    tags = [call for call in mined.recording.sessions[0].calls if call.tool == "shop.tag_order"]
    redacted = replace(tags[0], args={**tags[0].args, "tag": "[redacted:email]"})
    pack = mined_from(altered(mined.recording, redacted, *tags[1:]))
    assert pack.left_out == {"something in it was redacted": 1}
    assert "redacted" not in json.dumps(pack.declaration.to_json())


def test_a_call_with_huge_arguments_is_left_out(mined: Mined) -> None:
    tags = [call for call in mined.recording.calls if call.tool == "shop.tag_order"][:2]
    huge = replace(tags[0], args={**tags[0].args, "note": ["x" * 900] * 20})
    long = replace(tags[0], args={**tags[0].args, "note": "x" * 1_001})
    pack = mined_from(altered(mined.recording, huge, long, tags[1]))
    assert sorted(pack.left_out.values()) == [1, 1]
    assert "xxx" not in json.dumps(pack.declaration.to_json())


def test_an_argument_that_nothing_can_bound_is_said_and_its_writes_are_asked_about(mined: Mined) -> None:
    tags = [call for call in mined.recording.calls if call.tool == "shop.tag_order"][:40]
    loose = [replace(call, args={**call.args, "note": chr(0x4E00 + at) * (at + 1)}) for at, call in enumerate(tags)]
    pack = mined_from(altered(mined.recording, *loose))
    (place,) = [place for place in pack.notes if place[0] == "permissions"]
    assert any(note.startswith("NOT BOUNDED: note") for note in pack.notes[place])
    assert pack.declaration.auto_approve == ()


def test_a_tool_that_is_gone_is_left_out(mined: Mined) -> None:
    gone = replace(mined.recording.calls[0], tool="shop.gone")
    pack = mined_from(altered(mined.recording, gone, mined.recording.calls[1]))
    assert pack.left_out == {"its tool is no longer there": 1}
    assert pack.declaration.tools == (mined.recording.calls[1].tool,)


def test_the_cost_of_many_calls_is_an_amount_of_cents(mined: Mined) -> None:
    described = tools_of(World([])).describe()
    dear = [one.model_copy(update={"cost_cents": 0.31}) for one in described.capabilities]
    adapter = described.model_copy(update={"capabilities": tuple(dear)})
    recording = altered(mined.recording, *mined.recording.calls[:3])
    pack = mine(recording.sessions, [adapter], name="m", version="0.1.0", tenant_id=TENANT, approver="lead")
    assert pack.declaration.budget.max_cost_cents == 0.93


def test_an_argument_that_no_rule_can_name_is_said(mined: Mined) -> None:
    described, calls = tools_of(World([])).describe(), [c for c in mined.recording.calls if c.tool == "shop.find_order"]
    (tool,) = [one for one in described.capabilities if one.name == "find_order"]
    more = {"opt.x": {"type": "string", "maxLength": 5}, "a b": {"type": "string", "maxLength": 5}}
    schema = {**tool.input_schema, "properties": {**tool.input_schema["properties"], **more}}
    adapter = described.model_copy(update={"capabilities": (tool.model_copy(update={"input_schema": schema}),)})
    sessions = altered(mined.recording, *calls[:3]).sessions
    pack = mine(sessions, [adapter], name="m", version="0.1.0", tenant_id=TENANT, approver="lead")
    assert any("NOT DENIED: opt.x" in note for note in pack.notes["permissions", "shop.find_order"])
    assert [one.when for one in pack.declaration.deny] == ['not missing(args["a b"])']
    assert expand(pack.declaration, [adapter])


def test_an_argument_that_nothing_bounds_is_named(mined: Mined) -> None:
    session = mined.recording.sessions[0]
    call = next(one for one in session.calls if one.tool == "shop.find_order")
    many = [replace(call, call_id=f"c{number}", args={"order_id": {"nested": number}}) for number in range(20)]
    pack = mined_from(Recording([replace(session, calls=many)]))
    assert pack.unbounded == {"shop.find_order": ["order_id"]}
    assert "NOT BOUNDED: order_id" in pack.notes["permissions", "shop.find_order"][1]
    few = mined_from(Recording([replace(session, calls=many[:3])]))
    assert few.unbounded == {}


@pytest.mark.parametrize(("worked_ms", "mined_ms"), [(0, None), (14_000.5, None), (40_000.2, 80_001)])
def test_a_pack_gives_sessions_twice_the_time_that_the_longest_one_worked(
    mined: Mined, worked_ms: float, mined_ms: int | None
) -> None:
    recorded = mined.recording.sessions
    pack = mined_from(Recording([replace(one, wall_clock_ms=worked_ms / n) for n, one in enumerate(recorded, 1)]))
    assert pack.declaration.to_json()["budget"].get("wall_clock_ms") == mined_ms
    assert (("budget",) in pack.notes) == (mined_ms is not None)
    assert all(one.wall_clock_ms > 0 for one in mined.recording.sessions), "each has a record"
