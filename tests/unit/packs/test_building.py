"""A pack declared in Python has its tools, its short form and its expansion."""

from __future__ import annotations

from typing import Any

import pytest

from contextos import pack, toolset
from contextos.errors import InvalidEnvelope, InvalidTool
from contextos.packs.facts import fact
from contextos.packs.reading import read_declaration, write_declaration
from tests.unit.packs.deploying import INTENT, TENANT, TOOLS, ci_status, rollback, scale

BASICS: dict[str, Any] = {"version": "1.0.0", "tenant": TENANT, "who": ("deployer",)}


def test_tools_are_given_as_functions_or_as_adapters() -> None:
    of_adapter = pack("deploy", tools=[TOOLS], intents={"deploy.change": INTENT}, **BASICS)
    of_functions = pack("deploy", tools=[ci_status, rollback, scale], intents={"deploy.change": INTENT}, **BASICS)
    assert of_adapter.adapters == (TOOLS,)
    assert [one.describe().adapter_id for one in of_functions.adapters] == ["deploying"]
    assert of_adapter.expansion.pack.pin == "deploy@1.0.0"


def test_conditions_can_be_objects() -> None:
    asked = {"role": "lead", "when": (fact.evidence.ci.blast_radius > 20) & (fact.args.service != "test")}
    made = pack("deploy", tools=[TOOLS], intents={"deploy.change": INTENT}, ask=[asked], **BASICS)
    assert made.declaration.ask[0].when == 'evidence.ci.blast_radius > 20 and args.service != "test"'
    assert read_declaration(write_declaration(made.declaration).encode()) == made.declaration


@pytest.mark.parametrize(
    ("tools", "fields", "error"),
    [
        ([len], {}, InvalidTool),
        ([TOOLS, toolset("deploy", [ci_status])], {}, InvalidTool),
        ([TOOLS], {"whos": ["a"]}, InvalidEnvelope),
        ([TOOLS], {"who": "deployer"}, InvalidEnvelope),
    ],
    ids=["no tool", "one id twice", "an unknown field", "a text for a list"],
)
def test_a_misfit_is_refused(tools: list[Any], fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        pack("deploy", tools=tools, **{**BASICS, "intents": {"deploy.change": INTENT}, **fields})
