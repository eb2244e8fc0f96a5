"""The values of secret arguments: what one process has of them, and what their marks say."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.secret_arguments import MAX_HELD, SecretArguments, SecretValues, call_with
from contextos.contracts.encoding.redacted import is_secret_argument
from contextos.contracts.entries.kinds import account_of
from contextos.contracts.entries.recorded import AskedSecrets
from contextos.contracts.envelopes.tool import DEFINITION_DRIFT, AdapterReply, CallContext, ToolError
from contextos.contracts.journal import Logged, Parked
from contextos.errors import LostReply, Unavailable
from contextos.trust.redact import redact

RUN, TOOL, SECRET = "run_1", "bank.set", "Zq7-hedgehog/44x"
KEYS = itertools.count()


def process(owner: str = "me", *, alive: bool = True) -> SecretValues:
    return SecretValues(lambda count: next(KEYS).to_bytes(count), owner, lambda _owner: alive)


def asked(mark: str, held_by: str) -> list[Logged]:
    known = {"held_by": held_by, "traced": {"password": TRACED}}
    body = {"tool": TOOL, "args": {"password": mark}, "secrets": known}
    return [Logged(1, "call.asked", "1", 0, "", body, "")]


TRACED = {"origins": ["planner"], "integrity": "unknown", "classification": "INTERNAL"}


def test_a_mark_is_of_one_run_tool_argument_value_and_process() -> None:
    here, there = process(), process()
    one = here.mark(RUN, TOOL, "password", SECRET)
    assert one == here.mark(RUN, TOOL, "password", SECRET)
    others = [
        here.mark("run_2", TOOL, "password", SECRET),
        here.mark(RUN, "bank.other", "password", SECRET),
        here.mark(RUN, TOOL, "old", SECRET),
        here.mark(RUN, TOOL, "password", SECRET + "x"),
        there.mark(RUN, TOOL, "password", SECRET),
    ]
    assert len({one, *others}) == 6
    assert all(map(is_secret_argument, (one, *others)))
    # No rule takes a mark for something to redact.
    assert redact({"password": one, "client_secret": one}, ["secret", "pan", "email"])[1] == ()


def test_a_value_is_there_until_it_is_forgotten_and_in_no_representation() -> None:
    here = process()
    mark = here.mark(RUN, TOOL, "password", SECRET)
    assert here.values(RUN, {"password": mark}) is None
    here.hold(RUN, mark, SECRET)
    assert here.values(RUN, {"password": mark, "user": "ana"}) == {"password": SECRET}
    assert here.values("run_2", {"password": mark}) is None
    assert SECRET not in repr(here)
    here.forget(RUN, {"password": mark, "copies": 1})
    assert here.values(RUN, {"password": mark}) is None


def test_the_oldest_value_goes_first() -> None:
    here = process()
    marks = [here.mark(RUN, TOOL, "password", str(number)) for number in range(MAX_HELD + 1)]
    for mark in marks:
        here.hold(RUN, mark, SECRET)
    assert here.values(RUN, {"password": marks[0]}) is None
    assert here.values(RUN, {"password": marks[-1]}) == {"password": SECRET}


def test_the_same_call_has_the_same_form_and_a_mark_of_another_process_is_taken_as_it_is() -> None:
    here = process()
    mark = here.mark(RUN, TOOL, "password", SECRET)
    call = {"tool": TOOL, "args": {"password": SECRET, "copies": 1}}
    mine = AskedSecrets.model_validate({"held_by": "me", "traced": {"password": TRACED}})
    theirs = mine.model_copy(update={"held_by": "other"})
    recorded = {"password": mark, "copies": 1}
    assert here.recorded(RUN, call, mine, recorded) == {"tool": TOOL, "args": recorded}
    other = {"tool": TOOL, "args": {"password": "another", "copies": 1}}
    assert here.recorded(RUN, other, mine, recorded)["args"] != recorded
    assert here.recorded(RUN, other, theirs, recorded)["args"] == recorded


@pytest.mark.parametrize(
    ("owner", "alive", "waits"), [("me", True, False), ("other", False, False), ("other", True, True)]
)
def test_a_call_waits_for_another_living_process_alone(owner: str, alive: bool, waits: bool) -> None:
    here = process(alive=alive)
    mark = here.mark(RUN, TOOL, "password", SECRET)
    secrets = SecretArguments(account_of(RUN, asked(mark, owner)), here)
    if waits:
        with pytest.raises(Parked):
            secrets.wait_for_holder(RUN, {"password": mark}, 0)
        here.hold(RUN, mark, SECRET)
    secrets.wait_for_holder(RUN, {"password": mark}, 0)
    # A call without secrets waits for nobody.
    secrets.wait_for_holder(RUN, {"copies": 1}, 0)


def test_what_was_recorded_is_of_these_marks_alone() -> None:
    mark = process().mark(RUN, TOOL, "password", SECRET)
    assert SecretArguments(account_of(RUN, asked(mark, "me"))).asked({"password": mark}) is not None
    assert SecretArguments(account_of(RUN, asked(mark, "me"))).asked({"password": mark[:-2] + "a]"}) is None
    assert SecretArguments(account_of(RUN, [])).asked({"password": mark}) is None


class Says:
    """An adapter that answers or raises something, and what it got."""

    def __init__(self, said: AdapterReply | Exception) -> None:
        self.said = said
        self.got: Mapping[str, Any] = {}

    async def call(self, _name: str, args: Mapping[str, Any], _context: CallContext) -> AdapterReply:
        self.got = args
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def called(said: AdapterReply | Exception, secret: str = SECRET) -> AdapterReply:
    adapter: Any = Says(said)
    context = CallContext("acme", RUN, "tool_1", None, 0, 1)
    reply = asyncio.run(call_with(adapter, "set", {"password": "mark", "user": "ana"}, {"password": secret}, context))
    assert adapter.got == {"password": secret, "user": "ana"}
    return reply


def test_an_answer_has_the_secret_nowhere() -> None:
    error = ToolError(code=SECRET, message=f"no: {SECRET}", remedy=SECRET[::-1], pointer=f"/{SECRET}", facts=(SECRET,))
    for reply in (
        called(AdapterReply(error=error)),
        called(AdapterReply(output={SECRET: [SECRET]}, mutations=(SECRET,))),
    ):
        assert SECRET not in repr(reply)
        assert SECRET[::-1] not in repr(reply)


@pytest.mark.parametrize("kept", [4, 9, len(SECRET) - 1])
@pytest.mark.parametrize("form", [SECRET, SECRET[::-1], SECRET.encode().hex()])
@pytest.mark.parametrize("limit", [512, 2_000])
def test_a_text_that_an_adapter_cut_ends_in_no_part_of_the_secret(limit: int, form: str, kept: int) -> None:
    cut = ("y " * limit)[: limit - kept] + form[:kept]
    error = called(AdapterReply(error=ToolError(code=cut[-512:], message=cut))).error
    assert error is not None
    assert error.message == cut[:-kept]
    assert error.code == cut[-512:-kept]


def test_a_short_text_keeps_what_a_secret_begins_with() -> None:
    error = called(AdapterReply(error=ToolError(code="weak_pass", message="a weak pass")), "password-77").error
    assert error is not None
    assert (error.code, error.message) == ("weak_pass", "a weak pass")


def test_a_secret_that_is_a_part_of_a_code_hides_no_changed_definition() -> None:
    reply = called(AdapterReply(error=ToolError(code=DEFINITION_DRIFT, message="definition changed")), "definition")
    assert reply.error is not None
    assert (reply.error.code, reply.error.message) == (DEFINITION_DRIFT, "[credential] changed")


@pytest.mark.parametrize("error", [Unavailable("bank", f"no {SECRET}"), LostReply(f"lost {SECRET}")])
def test_an_error_has_the_secret_nowhere(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        called(error)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("status", "happened", "before", "user", "found"),
    [
        ("done", True, "other", "ana", "1"),
        ("failed", True, "other", "ana", "1"),
        ("refused", True, "other", "ana", "1"),
        ("failed", False, "other", "ana", None),
        ("done", True, "me", "ana", None),
        ("done", True, "other", "bob", None),
    ],
    ids=["done", "an error after an effect", "a refused answer", "no effect", "the same process", "other arguments"],
)
def test_an_effect_of_another_process_is_found_by_all_but_its_secret(
    status: str, happened: bool, before: str, user: str, found: str | None
) -> None:
    def call(key: str, held_by: str, who: str, mark: str) -> Logged:
        body = {"tool": TOOL, "args": {"user": who, "password": mark}, "secrets": {"held_by": held_by, "traced": {}}}
        return Logged(1, "call.asked", key, 0, "", body, "")

    here, there = process(), process("other")
    envelope = {"capability_id": TOOL, "tool_call_id": "tool_1", "metadata": {}}
    envelope |= {"citations": [], "risk_tags": [], "mutations": []}
    log = [
        call("1", before, user, there.mark(RUN, TOOL, "password", SECRET)),
        Logged(2, "tool.returned", "3/set/1", 0, "", {"happened": happened, "cost_cents": 0, "envelope": envelope}, ""),
        Logged(3, "call.answered", "1", 0, "", {"status": status, "step": "3/set", "failures": []}, ""),
        call("2", "me", "ana", mark := here.mark(RUN, TOOL, "password", SECRET)),
    ]
    capability: Any = SimpleNamespace(capability_id=TOOL, definition=SimpleNamespace(input_schema={}))
    assert (
        SecretArguments(account_of(RUN, log), here).done_elsewhere(capability, {"user": "ana", "password": mark})
        == found
    )
