"""What sessions recorded, read back call by call and counted by rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.deployment.queries.observations import counts_by_rule, read_sessions
from contextos.errors import InvalidInput, NotFound
from tests.e2e.test_observed_sessions import observed
from tests.sessions import EVAL, LOOKUP, REFUND, in_world, read_first, refund_args, refund_session
from tests.world import TENANT, TestWorld, request


def test_a_session_is_read_with_its_calls_their_answers_and_findings(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_read")
        await read_first(gate)
        await gate.call(REFUND, refund_args(), call_id="pay")
        await gate.call(REFUND, {"order_id": 7}, call_id="wrong")
        store = world.stores.tenant(TENANT)
        (session,) = (await read_sessions(store, TENANT, world.keys)).sessions
        assert session.observed
        assert session.principals.user.role == "support_agent"
        told = [(call.call_id, call.tool, call.status, len(call.findings)) for call in session.calls]
        assert told == [
            ("look", LOOKUP, "done", 0),
            ("check", EVAL, "done", 0),
            ("pay", REFUND, "done", 1),
            ("wrong", REFUND, "refused", 0),
        ]
        assert session.calls[2].envelope is not None
        assert session.calls[2].envelope["output"]["refund_amount_inr"] == 4200
        (count,) = counts_by_rule([session])
        assert (count.verdict, count.count, count.examples) == ("ask", 1, [(gate.run_id, "pay")])

    in_world(tmp_path, play, pack=observed)


def test_sessions_that_were_enforced_are_read_only_by_name(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_real", 900)
        await read_first(gate, 900)
        store = world.stores.tenant(TENANT)
        assert (await read_sessions(store, TENANT, world.keys)).sessions == []
        (session,) = (await read_sessions(store, TENANT, world.keys, ["ses_real"])).sessions
        assert not session.observed
        assert len(session.calls) == 2
        with pytest.raises(NotFound):
            await read_sessions(store, TENANT, world.keys, ["nobody"])

    in_world(tmp_path, play)


def test_a_run_of_a_plan_is_no_session(tmp_path: Path) -> None:
    from tests.world import open_world, run

    async def go() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(900, "req_plan"))
        with pytest.raises(InvalidInput, match="not a session"):
            await read_sessions(world.stores.tenant(TENANT), TENANT, world.keys, [view.run_id])
        await world.aclose()

    run(go())


def test_what_is_wrong_with_the_end_of_a_session_is_counted_by_rule(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        idle = await refund_session(world, "ses_idle", 900)
        await idle.finish("approved")
        (session,) = (await read_sessions(world.stores.tenant(TENANT), TENANT, world.keys)).sessions
        assert list(session.calls) == []
        (count,) = counts_by_rule([session])
        assert (count.rule, count.verdict, count.examples) == (
            "finish: must_escalate",
            "deny",
            [(idle.run_id, "finish")],
        )

    in_world(tmp_path, play, pack=observed)


def test_runs_that_were_not_read_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gates = [await refund_session(world, f"ses_{number}", 900) for number in range(3)]
        store = world.stores.tenant(TENANT)
        part = await read_sessions(store, TENANT, world.keys, limit=2)
        assert ([one.run_id for one in part.sessions], part.older) == ([gates[2].run_id, gates[1].run_id], True)
        whole = await read_sessions(store, TENANT, world.keys, limit=3)
        assert (len(whole.sessions), whole.older) == (3, False)
        assert len(whole.of_intents(["support.refund"]).sessions) == 3
        with pytest.raises(InvalidInput, match=r"no session of the intent `support\.refnud`.*did you mean"):
            whole.of_intents(["support.refund", "support.refnud"])

    in_world(tmp_path, play, pack=observed)
