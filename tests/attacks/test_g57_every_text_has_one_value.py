"""G57: a text that one reader reads as one value and another as another is read as one value, or refused.

The attacks: numbers, words and dates that YAML 1.1 reads otherwise than 1.2; members that are there twice; numbers that
are rounded; and defaults of foreign servers, which their servers fill in unseen.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import contextos
from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.mcp.drafting import Stated, draft_adapter
from contextos.adapters.openapi.document import read_openapi
from contextos.adapters.openapi.draft import draft_openapi
from contextos.adapters.openapi.requests import build_request
from contextos.adapters.openapi.secrets import ConnectionSecrets
from contextos.contracts.encoding.defaults import MAX_FILLED_BYTES, with_defaults
from contextos.contracts.encoding.yaml_text import read_document, write_yaml
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.ports.gates import Done, Refused, checked_call
from contextos.errors import InvalidInput, MalformedJson
from contextos.frameworks.offers import ask
from contextos.packs.reading import read_declaration
from contextos.server.mcp.stdio import read_line
from contextos.server.serving import refused_json
from contextos.testing import in_memory
from tests.attacks.test_d39_untrusted_destinations import PEOPLE, gate_of
from tests.attacks.test_g56_arguments_have_one_form import bodies_of
from tests.deployers import TENANT
from tests.mcp_face import ORDER, TOKEN, refund_workspace, serve_words, served
from tests.openapi_documents import OK, document

NUMBERS = ["010", "0o10", "08", "-010", "1_000", "1_0.5", "0b1", "0x_", "1:30", "190:20:30", "1:30.5", "1e3", "1.5e3"]
WORDS = ["yes", "no", "on", "off", "Yes", "NO", "On", "OFF", "2026-05-03", "2026-05-03T09:30:00Z", "="]
TWO_MEANINGS = [*NUMBERS, *WORDS]
ONE_MEANING = {"10": 10, "-5": -5, "+7": 7, "0": 0, "1.5": 1.5, ".5": 0.5, "0x1F": 31, "true": True, "False": False}


@pytest.mark.parametrize("scalar", TWO_MEANINGS)
def test_a_scalar_of_two_meanings_is_refused_in_a_pack_with_what_to_write(scalar: str) -> None:
    text = (
        f"name: a\nversion: 1.0.0\ntenant: t\nauto_approve:\n- tools: [a.b]\n  bounds: {{amount: {{max: {scalar}}}}}\n"
    )
    for read in (read_declaration, read_document):
        with pytest.raises(MalformedJson) as caught:
            read(text.encode())
        problem = caught.value.problems[0]
        assert problem.code == "ambiguous"
        assert f"`{scalar}`" in problem.detail
        assert "line 6" in problem.detail
        assert problem.remedy.startswith(f'write `"{scalar}"` for the text')
    assert read_document(f"a: '{scalar}'\n".encode()) == {"a": scalar}, "in quotes it is the text"
    with pytest.raises(MalformedJson):
        read_document(f"{scalar}: 1\n".encode())


@pytest.mark.parametrize("scalar", ONE_MEANING)
def test_a_scalar_of_one_meaning_is_read_by_every_reader(scalar: str) -> None:
    assert read_document(f"a: {scalar}\n".encode()) == {"a": ONE_MEANING[scalar]}
    assert read_openapi(f"a: {scalar}\n".encode()) == {"a": ONE_MEANING[scalar]}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: 1\na: 2\n", "duplicate_key"),
        ("a: &x {b: 1}\nc: {<<: *x}\n", None),
        ("a: 9007199254740993\n", "integer_too_large"),
        ("a: .inf\n", "number_not_finite"),
        ("a: -.INF\n", "number_not_finite"),
        ("a: .nan\n", "number_not_finite"),
        ("a: !!int '5'\n", "tag"),
        ("a: !!float 5\n", "tag"),
        ("? {a: 1}\n: 2\n", "not_text"),
        ("a: 1e400\n", "number_not_finite"),
        ("%YAML 1.1\n---\na: 5\n", "version"),
        *((f"a: {letter}\n", "ambiguous") for letter in "yYnN"),
        ("a: [1, y]\n", "ambiguous"),
    ],
)
def test_yaml_that_another_reader_reads_otherwise_is_refused(text: str, code: str | None) -> None:
    with pytest.raises(MalformedJson) as caught:
        read_document(text.encode())
    assert code in (None, caught.value.problems[0].code)


@pytest.mark.parametrize(
    "text",
    [
        *("a: 1\na: 2\n", "a: &x {b: 1}\nc: {<<: *x}\n", "a: !!int 5\n", "a: .inf\n"),
        *("a: 1e400\n", "%YAML 1.1\n---\na: 5\n", '{"a": 1e400}', '{"a": -1e400}', '{"a": NaN}', '{"a": -Infinity}'),
        '{"a": ' + "9" * 129 + "}",
    ],
)
def test_a_foreign_document_is_refused_there_too(text: str) -> None:
    with pytest.raises(MalformedJson):
        read_openapi(text.encode())


def test_letters_are_names_and_bounds_of_64_bits_are_taken() -> None:
    assert read_document(b"point: {x: 1, y: 2, n: 'n'}\n") == {"point": {"x": 1, "y": 2, "n": "n"}}
    assert read_openapi(b"point: {y: 2, axis: y}\n") == {"point": {"y": 2, "axis": "y"}}
    for text in ("a: 9223372036854775807\n", '{"a": 9223372036854775807}'):
        assert read_openapi(text.encode()) == {"a": 2**63 - 1}


def test_the_writer_writes_no_text_that_a_reader_takes_for_a_number() -> None:
    texts = {
        f"k{number}": text for number, text in enumerate([*TWO_MEANINGS, *ONE_MEANING, "~", "null", "<<", "", *"yYnN"])
    }
    assert read_document(write_yaml(texts).encode()) == texts
    assert read_openapi(write_yaml(texts).encode()) == texts


CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bank__pay","arguments":%s}}'
REFUSED = {
    "a member twice": b'{"amount": 100, "amount": 4200}',
    "a member twice, escaped once": b'{"amount": 100, "\\u0061mount": 4200}',
    "a member twice, inside": b'{"order": {"a": 1, "a": 2}}',
    "a member twice, behind sixty numbers": b'{"n": [' + b"99999999999999999999," * 60 + b'1], "a": 1, "a": 2}',
    "a member twice, below a depth": b'{"x": ' + b"[" * 200 + b"]" * 200 + b', "a": 1, "a": 2}',
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_message_over_stdio_with_two_meanings_is_answered_with_an_error(case: str) -> None:
    message, answered = read_line(CALL % REFUSED[case])
    assert message is None
    assert answered is not None
    said = answered.message.model_dump()
    assert said["id"] == 7
    assert said["error"]["code"] == -32600


def test_what_has_one_meaning_is_no_error() -> None:
    for args in (b'{"amount": 100}', b'{"a": [1, 1.5, "\\u00e9"], "b": {"a": 1}}', b"{}"):
        assert refused_json(CALL % args) is None
        assert read_line(CALL % args)[0] is not None


def test_a_message_over_http_with_two_meanings_is_answered_with_an_error(tmp_path: Path) -> None:
    workspace = refund_workspace(tmp_path / "shop")
    (workspace / "token").touch(0o600)
    (workspace / "token").write_text(TOKEN)
    headers = {
        "authorization": f"Bearer {TOKEN}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2025-06-18",
    }
    words = serve_words(workspace, "s1", "--http", "127.0.0.1:0", "--token-file", str(workspace / "token"))
    with served(words) as address, httpx.Client(base_url=f"http://{address}", headers=headers, timeout=60) as client:
        for args in REFUSED.values():
            answer = client.post("/mcp", content=CALL % args)
            assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (400, 7, -32600)
        assert (
            client.post("/mcp", content=CALL % REFUSED["a member twice"], headers={"authorization": "x"}).status_code
            == 401
        )
        fine = (CALL % json.dumps(ORDER).encode()).replace(b"bank__pay", b"adp_orders__lookup")
        assert client.post("/mcp", content=fine).json()["result"]["structuredContent"]


@pytest.mark.parametrize(
    ("args", "place"),
    [
        ({"a": 2**53}, "/a"),
        ({"a": {"b": [1, -(2**53)]}}, "/a/b/1"),
        ({"a": float(2**53)}, ""),
        ({"a": float("nan")}, "/a"),
        ({"a": float("-inf")}, "/a"),
        ({"a": 2**70}, "/a"),
    ],
)
def test_a_number_that_a_reader_could_round_is_refused_with_its_place(args: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked_call("bank.pay", args, "c1")
    assert place in caught.value.problems[0].detail

    class NoGate:
        session, tools = "s", ("bank.pay",)

        async def call(self, name: str, args: Any, *, call_id: str) -> Any:
            checked_call(name, args, call_id)
            raise AssertionError("it is taken")

    gate: Any = NoGate()
    texts = ('{"a": 9007199254740993}', '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 9007199254740993.0}', '{"a": 1e400}')
    for text in texts:
        answer = asyncio.run(ask(gate, {}, "bank__pay", text, "c1"))
        assert isinstance(answer, Refused)
        assert "`/a`" in answer.reasons[0].detail


TOOL = {
    "name": "pay",
    "description": "Pay.",
    "inputSchema": {
        "type": "object",
        "required": ["account"],
        "properties": {
            "account": {"type": "string"},
            "amount": {"type": "integer", "default": 500},
            "note": {"type": "string"},
            "options": {"type": "object", "properties": {"fast": {"type": "boolean", "default": False}}},
            "broken": {"type": "integer", "default": "many"},
        },
    },
}


def test_a_default_of_an_mcp_server_is_filled_in_before_anybody_looks() -> None:
    connection = McpConnection(kind="mcp", command=("x",))
    drafted, rows = draft_adapter("bank", connection, [TOOL], Stated(local=True))
    schema = CapabilityDefinition.model_validate(drafted["definition"]["capabilities"][0]).input_schema
    assert with_defaults(schema, {"account": "a"}) == {"account": "a", "amount": 500}
    assert with_defaults(schema, {"account": "a", "options": {}})["options"] == {"fast": False}
    assert "default" not in schema["properties"]["broken"]
    assert "/properties/broken" in rows[0].why


PARAMETERS = [
    {"name": "account", "in": "query", "required": True, "schema": {"type": "string"}},
    {"name": "amount", "in": "query", "schema": {"type": "number", "default": 1000.0}},
    {"name": "kind", "in": "query", "schema": {"allOf": [{"$ref": "#/components/schemas/Kind"}], "default": "a b"}},
    {"name": "none", "in": "query", "schema": {"type": "string", "nullable": True, "default": None}},
    {"name": "broken", "in": "query", "schema": {"type": "integer", "default": "many"}},
]


def test_a_default_of_an_openapi_document_is_judged_and_sent() -> None:
    raw = document(
        {"/pay": {"post": {"operationId": "pay", "parameters": PARAMETERS, "responses": OK}}},
        schemas={"Kind": {"type": "string"}},
    )
    draft = draft_openapi("bank", raw, server="https://bank.example")
    schema = draft.definition.capabilities[0].input_schema
    args = with_defaults(schema, {"account": "a"})
    assert args == {"account": "a", "amount": 1000, "kind": "a b"}
    sent = build_request(
        "https://bank.example",
        draft.operations["pay"],
        args,
        ConnectionSecrets({}, {}, Path()),
        idempotency_key=None,
        trace={},
    )
    assert sent.url == "https://bank.example/pay?account=a&amount=1000&kind=a%20b"
    assert any("default" in one for one in draft.notes["pay"])


def test_defaults_that_a_list_multiplies_are_refused_with_the_place() -> None:
    schema = {"properties": {"items": {"items": {"properties": {"text": {"default": "x" * 1000}}}}}}
    with pytest.raises(InvalidInput) as caught:
        with_defaults(schema, {"items": [{}] * 1000})
    assert caught.value.problems[0].pointer.startswith("/items/")
    assert len(str(with_defaults(schema, {"items": [{}] * 100}))) < MAX_FILLED_BYTES

    @contextos.write(risk="reversible", idempotency="none")
    def pay(items: list[dict[str, str]]) -> str:
        """Pay."""
        return "paid"

    definition = pay.definition.model_copy(deep=True)
    below = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"t": {"type": "string", "default": "x" * 900}},
    }
    definition.input_schema["properties"]["items"] = {"type": "array", "items": below}
    adapter = contextos.FunctionAdapter(
        contextos.toolset("bank", [pay]).describe().model_copy(update={"capabilities": (definition,)}),
        {"pay": lambda _args, _context: {"result": "paid"}},
    )
    pack = contextos.pack(
        "bank", version="1.0.0", tenant=TENANT, tools=[adapter], who=["deployer"], approver="approver"
    )
    with in_memory(packs=[pack], directory=PEOPLE, lint=False) as app:
        answer = gate_of(app).call("bank.pay", {"items": [{}] * 1000}, call_id="c1")
        assert isinstance(answer, Refused)
        assert answer.reasons[0].code == "schema_mismatch"
        assert "larger than" in answer.reasons[0].detail


def test_evidence_of_a_read_at_its_default_is_about_the_default() -> None:
    """A balance of the main account lets nobody pay from another one."""
    paid: list[str] = []

    @contextos.read(integrity="trusted", produces="balance")
    def balance(owner: str, account: str = "main", verbose: bool = False) -> int:
        """The balance."""
        return 7

    @contextos.write(risk="reversible", idempotency="none")
    def pay(owner: str, account: str, amount: int) -> str:
        """Pay."""
        paid.append(account)
        return "paid"

    pack = contextos.pack(
        "bank",
        version="1.0.0",
        tenant=TENANT,
        tools=[contextos.toolset("bank", [balance, pay])],
        who=["deployer"],
        approver="approver",
        auto_approve=[{"tools": ["bank.pay"], "bounds": {"amount": {"max": 5}}}],
        deny=[{"tools": ["bank.pay"], "when": "missing(evidence.balance.result)", "because": "no balance"}],
    )
    with in_memory(packs=[pack], directory=PEOPLE, lint=False) as app:
        gate = gate_of(app)
        assert isinstance(gate.call("bank.balance", {"owner": "ana"}, call_id="look"), Done)
        other = gate.call("bank.pay", {"owner": "ana", "account": "other", "amount": 1}, call_id="c1")
        assert isinstance(other, Refused), other
        main = gate.call("bank.pay", {"owner": "ana", "account": "main", "amount": 1}, call_id="c2")
        assert isinstance(main, Done), main
        kinds = [kind for kind, _ in app.call(bodies_of, app, gate.run_id)]
        assert "tool.dispatching" in kinds
    assert paid == ["main"]
