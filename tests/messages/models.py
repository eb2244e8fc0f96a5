"""What a model reads, when a call of its is refused or fails: through a plain loop, over MCP, and of other doors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

import contextos
from contextos.frameworks.loops import anthropic_answers, openai_answers
from contextos.server.mcp.answers import call_result, error_result
from contextos.testing import in_memory
from tests.messages.rows import Row

TENANT = "tenant_acme"


class Line(BaseModel):
    """One line of an order."""

    model_config = ConfigDict(extra="forbid")
    sku: Annotated[str, Field(max_length=10)]
    count: Annotated[int, Field(ge=1, le=99)]


class Card(BaseModel):
    """A card that is on file."""

    model_config = ConfigDict(extra="forbid")
    card_id: str


class Bank(BaseModel):
    """A bank account that is on file."""

    model_config = ConfigDict(extra="forbid")
    iban: Annotated[str, Field(pattern=r"^[A-Z]{2}[0-9]{4}$")]
    holder: str


@contextos.read(integrity="trusted", produces="hours")
def hours() -> bool:
    """Return whether the desk is open."""
    return True


@contextos.read(integrity="trusted")
def status(
    service: Literal["checkout", "billing"],
    region: Annotated[str, Field(pattern=r"^[a-z]+-[0-9]{2}$")],
    limit: Annotated[int, Field(ge=1, le=5)] = 3,
) -> bool:
    """Return whether a service is up."""
    return True


@contextos.read(integrity="trusted")
def order(lines: Annotated[list[Line], Field(max_length=3)], payer: Card | Bank, note: str = "") -> int:
    """Return the price of an order."""
    if note == "sold out":
        raise contextos.BusinessError("no_stock", "there is no `sku_1` left")
    return int(note) if note else 1


@contextos.write(risk="irreversible", idempotency="none")
def refund(amount: Annotated[int, Field(ge=1)], account: str) -> bool:
    """Pay an amount back."""
    return True


PACK = contextos.pack(
    "acme.desk",
    version="1.0.0",
    tenant=TENANT,
    tools=[contextos.toolset("desk", [hours, status, order, refund])],
    who=["clerk"],
    approver="lead",
    deny=[
        {"when": "args.limit == 4", "tools": ["status"], "because": "four is kept for the night shift"},
        {"when": "args.amount > 1000", "tools": ["refund"], "because": "more than 1000 is paid by the back office"},
    ],
    ask=[{"role": "lead", "when": "args.amount > 100"}],
    permissions={"refund": {"without_sum": "a lead is asked", "arg_constraints": {"account": {"enum": ["a1", "a2"]}}}},
    intents={"acme.desk": {"requires": ["hours"]}},
    budget={"max_tool_calls": 40},
)
PEOPLE = {
    TENANT: {
        "users": [{"user_id": "ana", "role": "clerk", "delegation_live": True}],
        "agents": [
            {
                "agent_id": "agt_desk",
                "agent_urn": "agent:acme/desk@1.0.0",
                "workload_identity": "spiffe://acme/desk",
                "role": "desk",
                "owner": "boss",
                "lifecycle": "active",
                "ceiling": "destructive",
                "scopes": [],
            }
        ],
        "delegations": {"tok_ana": {"subject": "ana", "agent_id": "agt_desk", "scopes": [], "expires_at": 4102444800}},
        "approvers": [{"approver_id": "lea", "roles": ["lead"], "granted_by": {"lead": "cto"}}],
    }
}

GOOD = {"service": "checkout", "region": "eu-01"}
CARD = {"card_id": "c"}
CALLS: list[tuple[str, str, Any]] = [
    ("no_arguments", "desk__status", {}),
    ("one_missing", "desk__status", {"service": "checkout"}),
    ("typo_of_an_argument", "desk__status", {**GOOD, "limt": 2}),
    ("unknown_argument", "desk__status", {**GOOD, "colour": "red"}),
    ("not_in_the_enumeration", "desk__status", {**GOOD, "service": "chekout"}),
    ("another_form", "desk__status", {**GOOD, "region": "Europe"}),
    ("above_the_maximum", "desk__status", {**GOOD, "limit": 9}),
    ("below_the_minimum", "desk__status", {**GOOD, "limit": 0}),
    ("text_for_a_number", "desk__status", {**GOOD, "limit": "2"}),
    ("null_for_a_number", "desk__status", {**GOOD, "limit": None}),
    ("three_at_once", "desk__status", {"service": "x", "region": "Europe", "limit": 9}),
    ("denied_by_a_rule", "desk__status", {**GOOD, "limit": 4}),
    ("list_for_an_object", "desk__order", {"lines": [], "payer": [1]}),
    ("no_branch_of_a_union", "desk__order", {"lines": [], "payer": {"iban": "x"}}),
    ("deep_in_a_list", "desk__order", {"lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": 100}], "payer": CARD}),
    ("too_long_a_text", "desk__order", {"lines": [{"sku": "a" * 11, "count": 1}], "payer": CARD}),
    ("too_long_a_list", "desk__order", {"lines": [{"sku": "a", "count": 1}] * 4, "payer": CARD}),
    ("missing_deep_in_a_list", "desk__order", {"lines": [{"sku": "a"}], "payer": CARD}),
    ("refused_by_the_tool", "desk__order", {"lines": [], "payer": CARD, "note": "sold out"}),
    ("defect_of_the_tool", "desk__order", {"lines": [], "payer": CARD, "note": "x"}),
    ("typo_of_a_tool", "desk__statos", GOOD),
    ("no_such_tool", "weather", {}),
    ("no_json", "desk__status", '{"service": "checkout"'),
    ("no_object", "desk__status", "[1]"),
    ("argument_twice", "desk__status", '{"service": "checkout", "service": "billing", "region": "eu-01"}'),
    ("number_too_large", "desk__refund", '{"amount": 9007199254740993, "account": "a1"}'),
    ("not_a_number", "desk__refund", '{"amount": NaN, "account": "a1"}'),
    ("outside_of_a_bound_of_the_pack", "desk__refund", {"amount": 5, "account": "a9"}),
    ("denied_write", "desk__refund", {"amount": 5000, "account": "a1"}),
]


async def _loop(found: list[Row]) -> None:
    async with in_memory(packs=[PACK], directory=PEOPLE) as app:
        for name, tool, args in CALLS:
            # A session ends after 30 s, and a machine can be busy.
            gate = await app.gate(session=f"s_{name}", user="ana", agent="agt_desk", token="tok_ana")
            if name == "outside_of_a_bound_of_the_pack":
                await gate.call("desk.hours", {}, call_id="hours")
            text = args if isinstance(args, str) else json.dumps(args)
            call = {"id": f"call_{name}", "type": "function", "function": {"name": tool, "arguments": text}}
            answers = await openai_answers(gate, {"role": "assistant", "tool_calls": [call]})
            assert isinstance(answers, list), name
            found.append(Row(name, "model", "OpenAI loop", f"{tool} {text}", answers[0]["content"]))
        used = {"type": "tool_use", "id": "call_denied_write", "name": "desk__status", "input": GOOD}
        said = await anthropic_answers(gate, {"role": "assistant", "content": [used]})
        assert isinstance(said, list)
        words = said[0]["content"][0]["content"]
        found.append(Row("id_of_another_call", "model", "Anthropic loop", json.dumps(used), words))


async def _mcp(found: list[Row]) -> None:
    shown = ["desk__hours", "desk__order", "desk__refund", "desk__status"]
    async with in_memory(packs=[PACK], directory=PEOPLE) as app:
        gate = await app.gate(session="s", user="ana", agent="agt_desk", token="tok_ana")
        for name, tool, args in (
            ("mcp_missing", "desk.status", {}),
            ("mcp_unknown_tool", "desk.statos", {}),
            ("mcp_denied", "desk.status", {**GOOD, "limit": 4}),
            ("mcp_refused_by_the_tool", "desk.order", {"lines": [], "payer": CARD, "note": "sold out"}),
            ("mcp_evidence_missing", "desk.refund", {"amount": 5, "account": "a1"}),
        ):
            said = call_result(await gate.call(tool, args, call_id=name), gate.run_id, shown)
            found.append(Row(name, "model", "MCP tools/call", f"{tool} {json.dumps(args)}", said.content[0].text))
        await gate.call("desk.hours", {}, call_id="hours")
        asked = call_result(
            await gate.call("desk.refund", {"amount": 500, "account": "a1"}, call_id="w"), "run_1", shown
        )
        found.append(Row("mcp_waits_for_a_person", "model", "MCP tools/call", "desk.refund 500", asked.content[0].text))
        after = call_result(await gate.call("desk.status", GOOD, call_id="after"), "run_1", shown)
        found.append(Row("mcp_an_earlier_call_waits", "model", "MCP tools/call", "desk.status", after.content[0].text))
        try:
            await gate.call("desk.status", "{", call_id="broken")
        except contextos.ContextOSError as error:
            found.append(
                Row("mcp_no_json", "model", "MCP tools/call", "desk.status {", error_result(error).content[0].text)
            )


async def _ended(found: list[Row]) -> None:
    async with in_memory(packs=[PACK], directory=PEOPLE) as app:
        gate = await app.gate(session="s", user="ana", agent="agt_desk", token="tok_ana")
        printed = await gate.call("desk.order", {"lines": [], "payer": CARD, "note": "sold out"}, call_id="printed")
        output = json.dumps(printed.output)  # type: ignore[union-attr]
        found.append(Row("printed_output", "author", "print(answer.output)", 'desk.order note="sold out"', output))
        await gate.finish("escalated", "enough")
        call = {"id": "call_late", "type": "function", "function": {"name": "desk__status", "arguments": "{}"}}
        answers = await openai_answers(gate, {"role": "assistant", "tool_calls": [call]})
        assert isinstance(answers, list)
        found.append(Row("after_the_end", "model", "OpenAI loop", "desk__status {}", answers[0]["content"]))


def produced(folder: Path) -> Iterator[Row]:
    """The rows of models."""
    found: list[Row] = []
    for play in (_loop, _mcp, _ended):
        asyncio.run(play(found))
    yield from found
