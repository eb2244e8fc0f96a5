"""Opening a session: whose it is, which tools it has, and what is refused before anything is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.documents.runs import REQUESTS
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.ports.gates import Refused
from contextos.control.artifacts import SPECS_TYPE
from contextos.deployment.acts.unmatched_rules import session_intents
from contextos.deployment.gate.opening import find_session, open_session, session_tools
from contextos.errors import ConflictingRequest, InvalidInput, NotFound
from contextos.trust.seal import seal
from tests.modelled import modelled, pack
from tests.sessions import EVAL, LOOKUP, REFUND, in_world, read_first, refund_args, refund_session
from tests.world import TENANT, TestWorld, example, request


def test_another_session_of_the_name_is_refused(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        await refund_session(world, "ses_mine")
        with pytest.raises(ConflictingRequest):
            await refund_session(world, "ses_mine", user="usr_772")
        with pytest.raises(ConflictingRequest):
            await refund_session(world, "ses_mine", context={"order_id": "ord_890"})
        with pytest.raises(InvalidInput, match="does not know"):
            await refund_session(world, "ses_other", agent="agt_nobody")
        with pytest.raises(InvalidInput, match=r"is not a tool of this session; did you mean `adp_orders\.lookup`\?"):
            await refund_session(world, "ses_tools", tools=[LOOKUP, "adp_orders.lookup_all"])

    in_world(tmp_path, play)


def test_a_misspelt_intent_is_answered_with_the_nearest_one(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        with pytest.raises(InvalidInput, match=r"no pin for the intent .*; did you mean `support\.refund`"):
            await refund_session(world, "ses_typo", intent="support.refnud")
        body = request(900, "req_typo")
        body["input"]["intent"] = "support.refnud"
        view = await world.deployment.invoke(body)
        assert view.record is not None
        (failure,) = view.record["rationale"]["failures"]
        assert failure["code"] == "unknown_intent"
        assert failure["detail"].endswith("did you mean `support.refund`?")

    in_world(tmp_path, play)


def test_a_session_takes_the_pin_of_a_pack_alone_beside_one_with_a_catalog(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        catalog = {
            "catalog_id": "catalog.support",
            "version": "2.1.0",
            "tenant": TENANT,
            "decision_specs": example("pack.json")["decision_layer"]["decision_specs"],
        }
        ref = await world.publish(seal(SPECS_TYPE, canonical(catalog), world.keys, "pack"))
        [alone] = (await world.deployment.catalog(TENANT).active()).packs
        await world.pin_pack(ref, *alone.refs)
        assert len((await world.deployment.catalog(TENANT).active()).packs) == 2
        gate = await refund_session(world, "ses_alone")
        assert gate.tools

    in_world(tmp_path, play)


def test_a_session_that_was_refused_is_opened_anew_under_its_name(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        [pin] = (await world.deployment.catalog(TENANT).active()).packs
        with pytest.raises(InvalidInput):
            await refund_session(world, "ses_again", intent="support.nothing", pack=pin.refs[0])
        with pytest.raises(NotFound):
            await find_session(world.deployment, TENANT, "ses_again")
        gate = await refund_session(world, "ses_again")
        assert (await find_session(world.deployment, TENANT, "ses_again"))[0].run_id == gate.run_id
        with pytest.raises(ConflictingRequest):
            await refund_session(world, "ses_again", intent="support.another", pack=pin.refs[0])
        with pytest.raises(InvalidInput, match=r"support\.nothing"):
            # What was refused before stays refused, and says why.
            await refund_session(world, "ses_again", intent="support.nothing", pack=pin.refs[0])

    in_world(tmp_path, play)


def test_a_pack_that_is_not_pinned_is_answered_with_the_one_that_is(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        [pin] = (await world.deployment.catalog(TENANT).active()).packs
        with pytest.raises(InvalidInput) as refused:
            await refund_session(world, "ses_pack", pack=f"{pin.refs[0]}9")
        [problem] = refused.value.problems
        assert (problem.pointer, problem.code) == ("/pack", "unpinned_ref")
        assert problem.remedy == f"did you mean `{pin.refs[0]}`?"

    in_world(tmp_path, play)


@pytest.mark.parametrize("stated", [{}, {"intent": "support.refund"}], ids=["no intent", "an intent"])
@pytest.mark.parametrize("by", ["withdrawn", "environment"])
def test_a_pin_that_is_withdrawn_or_of_another_environment_opens_nothing(
    by: str, stated: dict[str, str], tmp_path: Path
) -> None:
    async def play(world: TestWorld) -> None:
        [pin] = (await world.deployment.catalog(TENANT).active()).packs
        if by == "withdrawn":
            await world.withdraw(pin.refs[0])
        else:
            world.deployment.config = replace(world.deployment.config, environment="prod")
        with pytest.raises(InvalidInput, match="the tenant has pinned none") as refused:
            await refund_session(world, "ses_none", **stated)
        assert refused.value.problems[0].code == "not_the_only_one"

    in_world(tmp_path, play)


def test_the_tools_of_a_session_are_the_only_ones_that_it_calls(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_reads", 900, tools=[LOOKUP, EVAL])
        assert gate.tools == (LOOKUP, EVAL)
        await read_first(gate, 900)
        answer = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(answer, Refused)
        assert answer.reasons[0].code == "tool_not_in_manifest"
        assert world.refunds() == []

    in_world(tmp_path, play)


def test_a_template_of_steps_is_no_session(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        with pytest.raises(InvalidInput, match="chosen by a template"):
            await refund_session(world, "ses_steps", 900)

    in_world(tmp_path, play, pack=None)


WHO: dict[str, Any] = {"user": "usr_771", "token": "tok_usr_771", "agent": "agt_support"}


async def runs_of(world: TestWorld) -> int:
    """How many requests were received."""
    return len(await world.deployment.ports.stores.tenant(TENANT).scan(REQUESTS.name))


@pytest.mark.requirement("R-LISTING")
def test_the_tools_of_a_session_are_known_before_it_is_open_and_nothing_is_stored(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        context = request(900, "ses_new")["input"]["context"]
        before = await session_tools(world.deployment, TENANT, "ses_new", **WHO, context=context)
        assert await runs_of(world) == 0
        gate = await open_session(world.deployment, TENANT, "ses_new", **WHO, context=context)
        assert before == gate.tools
        assert await session_tools(world.deployment, TENANT, "ses_new", **WHO) == gate.tools
        with pytest.raises(ConflictingRequest, match="another user or agent"):
            await session_tools(world.deployment, TENANT, "ses_new", **{**WHO, "user": "usr_772"})
        assert await runs_of(world) == 1

    in_world(tmp_path, play)


def test_to_ask_for_the_tools_of_a_template_of_steps_plans_and_calls_nothing(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        context = request(900, "ses_steps")["input"]["context"]
        with pytest.raises(InvalidInput, match="chosen by a template"):
            await session_tools(world.deployment, TENANT, "ses_steps", **WHO, context=context)
        assert world.refunds() == []
        assert await runs_of(world) == 0
        view = await world.deployment.invoke(request(900, "req_steps"))
        assert (view.state, len(world.refunds())) == ("completed", 1), "the test can fail"

    in_world(tmp_path, play, pack=None)


def test_to_ask_for_the_tools_without_a_delegation_lists_the_reads_and_of_nobody_is_refused(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        reads = await session_tools(world.deployment, TENANT, "ses_none", **{**WHO, "token": None})
        assert reads == (LOOKUP, EVAL), "nobody delegated the refund"
        with pytest.raises(InvalidInput, match="does not know"):
            await session_tools(world.deployment, TENANT, "ses_none", **{**WHO, "agent": "agt_nobody"})
        assert await runs_of(world) == 0

    in_world(tmp_path, play)


def test_an_intent_of_a_model_beside_it_stops_no_session_of_an_agent() -> None:
    both = pack(chosen_by="model")
    layer = both["decision_layer"]
    [template], [intent] = layer["task_templates"], layer["intents"]
    layer["task_templates"].append(
        template | {"template_id": "task_by_agent", "intent": "support.by_agent", "chosen_by": "agent"}
    )
    layer["intents"].append(intent | {"intent_id": "support.by_agent", "eligible_task_templates": ["task_by_agent"]})
    assert session_intents([(ContextPack.model_validate(both), ())]) == {"support.by_agent"}
    context = request(900, "s")["input"]["context"]
    with modelled(of=both) as world:
        assert world.app.gate(session="s_one", tenant=TENANT, context=context, **WHO).tools
        with pytest.raises(InvalidInput, match="refund` are chosen by a model"):
            world.app.gate(session="s_two", tenant=TENANT, intent="support.refund", context=context, **WHO)
