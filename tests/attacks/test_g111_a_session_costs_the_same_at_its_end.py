"""Attack: each call of a session over HTTP reads the whole session again, so a long one holds up the server.

Source: issue K1b, class I; docs/design/sessions.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.ports.gates import Done
from contextos.deployment.gate.opening import find_session
from contextos.errors import InvalidInput
from tests.attacks.test_d32_sessions_kept_in_memory import Process, between, roomy
from tests.http_face import begin_deploys, http_face
from tests.sessions import LOOKUP, assert_replays, refund_session
from tests.world import TENANT, open_world, request, run

ORDER = {"order_id": "ord_881"}


class Reads:
    """How many entries a store has read."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries = 0
        read: Callable[..., Awaitable[Any]] = type(store).read

        async def counted(*args: Any, **named: Any) -> Any:
            found = await read(*args, **named)
            self.entries += len(found)
            return found

        monkeypatch.setattr(type(store), "read", counted)

    def taken(self) -> int:
        taken, self.entries = self.entries, 0
        return taken


def test_the_last_call_of_a_session_over_http_reads_no_more_than_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_face(tmp_path, begin_deploys) as face:
        reads = Reads(face.app.stores.tenant("acme"), monkeypatch)
        who: dict[str, Any] = {"by": "ana", "tenant": "acme"}
        opened = {"session": "s1", "agent": "agt_deploy", "delegation": "tok_ana"}
        assert face.send("POST", "/v1/sessions", json=opened, **who).status_code == 201
        taken = []
        for number in range(8):
            reads.taken()
            body = {"call_id": f"c{number}", "tool": "deploy.ci_status", "args": {"service": "checkout"}}
            answered = face.send("POST", "/v1/sessions/s1/calls", json=body, **who)
            assert answered.json()["status"] == "done", answered.text
            taken.append(reads.taken())
        # Work beside the calls reads now and then too, so one call counts for its neighbours.
        assert min(taken[5:]) <= min(taken[1:4])


def test_servers_that_take_turns_at_the_calls_of_a_session_answer_each_once(tmp_path: Path, stores: str) -> None:
    async def play(ours: Process, theirs: Process) -> None:
        answers = []
        for number in range(6):
            one = (ours, theirs)[number % 2]
            calls, _ = await find_session(one.world.deployment, TENANT, "ses_shared")
            answers.append(await calls.call(LOOKUP, ORDER, call_id=f"c{number}"))
        assert all(isinstance(answer, Done) for answer in answers)
        made = len(ours.calls.made) + len(theirs.calls.made)
        for number, before in enumerate(answers):
            one = (theirs, ours)[number % 2]
            calls, _ = await find_session(one.world.deployment, TENANT, "ses_shared")
            again = await calls.call(LOOKUP, ORDER, call_id=f"c{number}")
            assert (again, len(ours.calls.made) + len(theirs.calls.made)) == (before, made)
        ended = await theirs.gate.finish("escalated")
        calls, _ = await find_session(ours.world.deployment, TENANT, "ses_shared")
        assert (await calls.finish("escalated")).record == ended.record
        await assert_replays(ours.world, ours.gate.run_id)

    between(tmp_path, stores, play)


def test_a_run_that_is_no_session_takes_no_call_and_no_end(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        view = await world.invoke(request(4200, "req_1"))
        calls, _ = await find_session(world.deployment, TENANT, "req_1")
        for said in (
            lambda: calls.call(LOOKUP, ORDER, call_id="c1"),
            lambda: calls.call(LOOKUP, "no JSON", call_id="c1"),
            lambda: calls.finish("approved"),
        ):
            with pytest.raises(InvalidInput) as refused:
                await said()
            assert [one.code for one in refused.value.problems] == ["not_opened"]
        assert (await world.deployment.view(TENANT, view.run_id)).waiting == view.waiting
        await world.aclose()

    run(act())


def test_a_tool_that_a_found_session_does_not_have_is_refused_with_those_that_it_has(
    tmp_path: Path, stores: str
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores, pack=roomy)
        await refund_session(world, "ses_1")
        calls, _ = await find_session(world.deployment, TENANT, "ses_1")
        refused = await calls.call("adp_orders.lookupp", ORDER, call_id="c1")
        assert "adp_orders.lookup" in refused.reasons[0].remedy  # type: ignore[union-attr]
        await world.aclose()

    run(act())
