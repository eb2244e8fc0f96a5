"""Writes that run on after they were accepted: started once, looked up until they are done, also by another process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

import contextos
from contextos.action.gateway.dispatcher import Dispatcher
from contextos.audit.replay import replay
from contextos.contracts.envelopes.tool import AdapterReply, ToolError
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.deployment.deployment import Deployment
from contextos.errors import LostReply
from contextos.testing import MovableClock, in_memory
from tests.deployers import TENANT, people
from tests.e2e.test_verdicts import Wrapped


@dataclass
class Builds:
    """The system that builds: what was started, which operations were asked about, and what each look-up finds."""

    started: list[str] = field(default_factory=list)
    asked: list[str | None] = field(default_factory=list)
    finds: list[Any] = field(default_factory=list)


@contextmanager
def building(finds: list[Any], *, honours: bool = False) -> Iterator[tuple[Any, Any, MovableClock, Builds]]:
    builds, clock = Builds(finds=finds), MovableClock()

    def built(key: contextos.Key, context: contextos.CallContext) -> bool | None:
        builds.asked.append(context.operation)
        found = builds.finds.pop(0)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    @contextos.write(risk="reversible", idempotency="lookup", lookup=built, destinations=[])
    def build(name: str) -> bool:
        """Build an image, which takes half an hour."""
        builds.started.append(name)
        raise contextos.Running("op-1", retry_after_s=600)

    alone = [{"tools": ["build"], "bounds": {"name": {"enum": ["web"]}}}]
    stated: dict[str, Any] = {"version": "1.0.0", "tenant": TENANT, "who": ["deployer"], "auto_approve": alone}

    tools = contextos.toolset("ci", [build])
    [one] = tools.describe().capabilities
    # The system refuses a call that comes too late, so what it never heard of by then was not done.
    rule = one.idempotency.model_copy(update={"honours_not_after": honours})
    definition = tools.describe().model_copy(update={"capabilities": (one.model_copy(update={"idempotency": rule}),)})
    pack = contextos.pack("ci", tools=[Wrapped(tools, definition=definition)], **stated)
    with in_memory(packs=[pack], directory=people(), clock=clock) as app:
        gate = app.gate(session="s", user="ana", token="tok_ana", agent="agt_deploy")
        yield app, gate, clock, builds


def later(app: Any, clock: MovableClock, times: int = 1) -> None:
    for _ in range(times):
        clock.advance(1_000)
        app.drive_due_runs()


def returned(app: Any, gate: Any) -> list[tuple[str, str | None]]:
    entries = app.call(app.deployment.ports.stores.tenant(TENANT).read, gate.view().run_id)
    bodies = [json.loads(one.body)["answer"] for one in entries if one.kind == "tool.returned"]
    return [(one["envelope"]["status"], one.get("operation")) for one in bodies]


def test_a_long_write_is_started_once_and_looked_up_until_it_is_done() -> None:
    runs_on = [contextos.Running("op-1", retry_after_s=600) for _ in range(3)]
    with building([*runs_on, True]) as (app, gate, clock, builds):
        answer = gate.call("ci.build", {"name": "web"}, call_id="1")
        assert isinstance(answer, Waiting), answer
        assert (builds.started, builds.asked) == (["web"], [])
        app.drive_due_runs()
        assert builds.asked == [], "it is looked up when the system said"
        later(app, clock, 4)
        assert builds.asked == ["op-1"] * 4
        answer = gate.call("ci.build", {"name": "web"}, call_id="1")
        assert isinstance(answer, Done), answer
        assert answer.output == {"result": True}
        assert builds.started == ["web"]
        assert returned(app, gate) == [("paused", "op-1")] * 4 + [("completed", None)]
        record = gate.finish("approved").record
        again = app.call(replay, app.deployment, TENANT, gate.view().run_id)
        assert again.record_hash == record["record_hash"]


def test_another_process_goes_on_looking_and_starts_nothing() -> None:
    with building([contextos.Running("op-1"), True]) as (app, gate, clock, builds):
        gate.call("ci.build", {"name": "web"}, call_id="1")
        run_id = gate.view().run_id
        for _ in range(2):
            # It knows the run from the journal alone.
            other = Deployment(app.call(given, app).ports, app.call(given, app).config)
            clock.advance(1_000)
            app.call(other.advance, TENANT, run_id)
        assert (builds.started, builds.asked) == (["web"], ["op-1"] * 2)
        assert isinstance(gate.call("ci.build", {"name": "web"}, call_id="1"), Done)


async def given(app: Any) -> Any:
    return getattr(app.deployment, "_target", app.deployment)


@pytest.mark.parametrize("lost", [OSError("down"), RuntimeError("x")])
def test_a_lost_look_up_is_made_again_and_nothing_is_sent_again(lost: Exception) -> None:
    with building([lost, lost, True]) as (app, gate, clock, builds):
        gate.call("ci.build", {"name": "web"}, call_id="1")
        later(app, clock, 3)
        assert (builds.started, builds.asked) == (["web"], ["op-1"] * 3)
        assert isinstance(gate.call("ci.build", {"name": "web"}, call_id="1"), Done)


@pytest.mark.parametrize("honours", [False, True])
def test_what_the_system_does_not_know_any_more_is_found_out_by_a_person(honours: bool) -> None:
    with building([None], honours=honours) as (app, gate, clock, builds):
        gate.call("ci.build", {"name": "web"}, call_id="1")
        later(app, clock, 3)
        assert (builds.started, builds.asked) == (["web"], ["op-1"])
        assert gate.view().waiting["for"] == "settlement"


def test_a_failed_operation_is_an_error_of_the_tool() -> None:
    with building([contextos.BusinessError("no_disk", "no room")]) as (app, gate, clock, builds):
        gate.call("ci.build", {"name": "web"}, call_id="1")
        later(app, clock)
        answer = gate.call("ci.build", {"name": "web"}, call_id="1")
        assert not isinstance(answer, Waiting | Refused), answer
        assert answer.error is not None
        assert builds.started == ["web"]


def test_a_name_with_a_secret_is_not_kept() -> None:
    with building([True]) as (app, gate, clock, builds):
        builds.finds = [contextos.Running("op?token=ghp_" + "a1B2" * 9), True]
        gate.call("ci.build", {"name": "web"}, call_id="1")
        later(app, clock, 3)
        assert builds.started == ["web"]
        assert all("ghp_" not in str(operation) for _, operation in returned(app, gate))


NO_NAME = LostReply("it was accepted, and no plain URL says where to ask about it")
NO_NAME.accepted = True


@contextmanager
def accepting(answer: Any, finds: list[Any]) -> Iterator[tuple[Any, Any, MovableClock, list[Any]]]:
    """A session with a keyed write that its system answers with `answer`, each look-up with the next of `finds`; what
    reached the system: the key of each call, and the operation of each look-up.
    """
    reached, clock = list[Any](), MovableClock()

    @contextos.write(risk="reversible", idempotency="keyed", destinations=[])
    def pay(name: str, key: contextos.Key) -> bool:
        """Pay."""
        return bool(name and key)

    def said(what: Any) -> Any:
        if isinstance(what, BaseException):
            raise what
        return what

    class Accepting:
        def __init__(self, tools: Any) -> None:
            self.describe = tools.describe

        async def call(self, _capability: str, _args: Any, context: Any) -> Any:
            reached.append(("call", context.idempotency_key))
            return said(answer)

        async def lookup(self, _capability: str, _key: str, context: Any) -> Any:
            reached.append(("look up", context.operation))
            return said(finds.pop(0))

    alone = [{"tools": ["pay"], "bounds": {"name": {"enum": ["web"]}}}]
    stated: dict[str, Any] = {"version": "1.0.0", "tenant": TENANT, "who": ["deployer"], "auto_approve": alone}
    pack = contextos.pack("ci", tools=[Accepting(contextos.toolset("ci", [pay]))], **stated)
    with in_memory(packs=[pack], directory=people(), clock=clock, lint=False) as app:
        gate = app.gate(session="s", user="ana", token="tok_ana", agent="agt_deploy")
        assert isinstance(gate.call("ci.pay", {"name": "web"}, call_id="1"), Waiting)
        yield app, gate, clock, reached


@pytest.mark.parametrize("answer", [AdapterReply(operation="https://bank/op?token=ghp_" + "a1B2" * 9), NO_NAME])
def test_a_keyed_write_that_was_accepted_under_no_name_that_is_kept_is_sent_once(answer: Any) -> None:
    with accepting(answer, []) as (app, gate, clock, reached):
        later(app, clock, 5)
        assert [how for how, _ in reached] == ["call"]
        assert gate.view().waiting["for"] == "settlement"


class Killed(BaseException):
    """The process ends here."""


def elsewhere(app: Any, gate: Any, *, killed: bool = False) -> None:
    """Drive the run in another process, which knows it from the journal alone; `killed`: when it has asked."""
    other, send = Deployment(app.call(given, app).ports, app.call(given, app).config), Dispatcher._send

    async def asks(self: Dispatcher, delivery: Any) -> Any:
        answer = await send(self, delivery)
        if killed:
            raise Killed
        return answer

    with pytest.MonkeyPatch.context() as patched, suppress(Killed):
        patched.setattr(Dispatcher, "_send", asks)
        app.call(other.advance, TENANT, gate.view().run_id)


RUNS_ON, DONE = AdapterReply(operation="op-1"), AdapterReply(output={"result": True})


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("first", [RUNS_ON, OSError("down")])
def test_a_keyed_write_that_was_accepted_is_looked_up_and_not_sent_again(first: Any, killed: bool) -> None:
    with accepting(RUNS_ON, [first, DONE]) as (app, gate, clock, reached):
        clock.advance(1_000)
        elsewhere(app, gate, killed=killed)
        clock.advance(1_000)
        elsewhere(app, gate)
        assert reached[1:] == [("look up", "op-1")] * 2
        assert isinstance(gate.call("ci.pay", {"name": "web"}, call_id="1"), Done)
        assert len(reached) == 3


def test_a_keyed_write_that_was_accepted_and_failed_is_an_error_of_the_tool() -> None:
    """It is the answer to the one call there was, and not to a second one under its key."""
    failed = AdapterReply(error=ToolError(code="no_funds", message="no funds"))
    with accepting(RUNS_ON, [failed]) as (app, gate, clock, reached):
        later(app, clock)
        answer = gate.call("ci.pay", {"name": "web"}, call_id="1")
        assert isinstance(answer, Done), answer
        assert answer.error is not None
        assert len(reached) == 2


def test_a_killed_look_up_holds_nobody_up_as_a_killed_call_would() -> None:
    """The killed process could only have asked, so what the next one finds counts at once."""
    with accepting(RUNS_ON, [RUNS_ON, None]) as (app, gate, clock, reached):
        clock.advance(1_000)
        elsewhere(app, gate, killed=True)
        elsewhere(app, gate)
        assert [how for how, _ in reached] == ["call", "look up", "look up"]
        assert gate.view().waiting["for"] == "settlement"


def test_no_agent_learns_the_name_of_an_operation() -> None:
    with building([contextos.Running("op-1"), None]) as (app, gate, clock, _):
        gate.call("ci.build", {"name": "web"}, call_id="1")
        later(app, clock, 3)
        assert gate.view().waiting["for"] == "settlement"
        assert "op-1" not in repr(gate.call("ci.build", {"name": "web"}, call_id="1"))
