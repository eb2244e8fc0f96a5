"""G141: cases from outside (H08, H22, H23, H31, H34): what is wrong is named with what to write, through the public
API, and no text of a pack steers the terminal of who reads it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

import contextos
from contextos.contracts.ports.gates import Done, Refused
from contextos.errors import InvalidInput
from contextos.testing import in_memory
from tests.attacks.test_d39_untrusted_destinations import PEOPLE, gate_of
from tests.deployers import TENANT

RAN: list[str] = []


@contextos.read(integrity="trusted")
def impact(service: str, window: Literal["day", "night"], depth: Annotated[int, Field(le=2**64, ge=-(2**70))]) -> int:
    """What a change of a service would reach."""
    return depth


@contextos.read(integrity="trusted")
def broken(service: str) -> str:
    """A tool whose code is wrong."""
    RAN.append(service)
    return {"a": service}["b"]


@contextos.write(risk="reversible", idempotency="none", destinations=[])
def note(country: str) -> str:
    """Write a note."""
    return country


TOOLS = contextos.toolset("deploy", [impact, broken, note])


def pack(**stated: Any) -> Any:
    fields = {"version": "1.0.0", "tenant": TENANT, "tools": [TOOLS], "who": ["deployer"], "approver": "oncall"}
    return contextos.pack("acme.look", **fields | stated)


def asked(tool: str, args: dict[str, Any], times: int = 1) -> Any:
    with in_memory(packs=[pack()], directory=PEOPLE, lint=False) as app:
        gate = gate_of(app)
        return [gate.call(tool, args, call_id=f"c{number}") for number in range(times)][-1]


GOOD = {"service": "shop", "window": "day", "depth": 1}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"service": "shop"}, 'lacks `window` (one of "day", "night") and `depth` (integer)'),
        ({}, "lacks `service` (string, maxLength 1000) and `window`"),
        (GOOD | {"window": "dawn"}, 'at `/window`: `window` is not one of "day", "night"'),
        (GOOD | {"depth": "deep"}, 'at `/depth`: `depth` is not of the type "integer"'),
        (GOOD | {"other": "SECRET"}, "those that are: `service`, `window`, `depth`"),
        (GOOD | {"service": "x" * 1001}, "`service` is longer than 1000 characters"),
    ],
)
def test_refused_arguments_are_named_with_what_the_tool_takes(args: dict[str, Any], says: str) -> None:
    answer = asked("deploy.impact", args)
    assert isinstance(answer, Refused)
    assert says in answer.reasons[0].detail
    assert "SECRET" not in str(answer)
    assert "dawn" not in str(answer)


@pytest.mark.parametrize("number", [2**53, 2**63, -(2**53), 10**400, float("inf")])
def test_a_number_that_json_does_not_carry_fails_its_call_alone_with_its_place(number: Any) -> None:
    with in_memory(packs=[pack()], directory=PEOPLE, lint=False) as app:
        gate = gate_of(app)
        with pytest.raises(InvalidInput) as refused:
            gate.call("deploy.impact", GOOD | {"depth": number}, call_id="bad")
        assert [one.pointer for one in refused.value.problems] == ["/args/depth"]
        assert isinstance(gate.call("deploy.impact", GOOD, call_id="good"), Done)


def test_a_bound_of_a_function_that_no_number_reaches_is_none() -> None:
    schema = impact.definition.input_schema["properties"]["depth"]
    assert (schema["minimum"], schema["maximum"]) == (-(2**53 - 1), 2**53 - 1)


def test_a_tool_whose_code_is_wrong_is_asked_once_and_is_no_outage() -> None:
    RAN.clear()
    answer = asked("deploy.broken", {"service": "shop"}, times=8)
    assert isinstance(answer, Done)
    assert answer.error is not None
    assert (answer.error.code, answer.error.retryable) == ("tool_defect", False)
    assert "`deploy.broken` has a defect: it raised `KeyError`" in answer.error.message
    assert len(RAN) == 8, "each call once, and no circuit opened"


@pytest.mark.parametrize("text", ["\x1b[2Jgone", "pay\u202eyap", "a\u2063b", "\x07"])
@pytest.mark.parametrize("place", ["deny", "description"])
def test_a_text_of_a_pack_that_nobody_sees_or_that_steers_a_terminal_is_refused(place: str, text: str) -> None:
    denial = {"when": "args.service == 'x'", "tools": ["impact"], "because": text}
    stated = {"deny": [denial]} if place == "deny" else {"intents": {"look": {"description": text}}}
    with pytest.raises(InvalidInput, match="the text contains"), in_memory(packs=[pack(**stated)], directory=PEOPLE):
        pass


def test_more_tools_than_a_template_has_are_said_with_their_number() -> None:
    many = []
    for number in range(117):
        names: dict[str, Any] = {}
        exec(f"def t{number}(a: str) -> str:\n    'x'\n    return a", names)
        many.append(contextos.read(integrity="trusted")(names[f"t{number}"]))
    with pytest.raises(InvalidInput, match=r"has 117 tools, and it can have 64; name fewer in `tools`"):
        pack(tools=[contextos.toolset("big", many)])


def test_values_of_two_types_in_a_list_are_named() -> None:
    rule = {"tools": ["note"], "bounds": {"country": {"enum": [False, "SE"]}}}
    with pytest.raises(InvalidInput, match="have no common type: boolean, string; write values of one type"):
        pack(auto_approve=[rule])
