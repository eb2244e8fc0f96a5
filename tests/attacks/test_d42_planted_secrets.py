"""D42: secrets of many shapes pass through arguments, results, errors and credentials, and are in nothing that is kept.

The attacks: an agent, a planned run and the tools of a function adapter, an MCP server and an HTTP API say them; an
adapter raises them; and servers send the credentials of their own connection back, in any encoding. What is searched is
every byte and every row of the workspace, the log, what commands print, exports, prompts, and what an OpenTelemetry
collector got.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.adapters.function.adapter import BusinessError, FunctionAdapter
from contextos.adapters.mcp.adapter import McpAdapter
from contextos.adapters.openapi.adapter import MAX_ERROR_CHARS, openapi_adapter
from contextos.adapters.openapi.draft import draft_openapi
from contextos.audit.export import export_runs
from contextos.audit.replay import replay
from contextos.cli import run_command_line
from contextos.contracts.envelopes.tool import AdapterDefinition, CallContext
from contextos.contracts.model import MAX_TEXT_CHARS
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.errors import InvalidInput, LostReply, Unavailable
from contextos.telemetry.logs import configure
from tests.deployers import SEEDS, TENANT, ana, make_workspace, people
from tests.loopback import Answer, Asked, serving
from tests.openapi_documents import OK, document
from tests.otlp import Collector, collecting
from tests.planted import Planted, forms, planted
from tests.segments import entries_as_rows
from tests.servers.adapters import adapter_of, drafted, hostile

SHAPES = planted()
CHUNKS = [list(SHAPES.values())[at : at + 3] for at in range(0, len(SHAPES), 3)]
LAB_TOKEN, API_TOKEN, API_PASSWORD = "q7-Lab/9+vX=zz81", "u3.Api_token~55", "robot:n0t-a-w0rd!"
OWN = {"own of the command": LAB_TOKEN, "own of the API": API_TOKEN, "own password": API_PASSWORD.partition(":")[2]}
ARGUMENTS = {
    "result": ["number"],
    "refuses": ["number", "how"],
    "raises": [],
    "is_down": [],
    "loses": ["copies"],
    "strict": ["number"],
    "post": ["text", "copies"],
    "put": ["text", "copies"],
}
WRITES = ("loses", "post", "put")
PLAIN = "order ord_881 of run_a1b2c3d4e5f60718, sha256:" + "0f" * 32 + ", IBAN DE89370400440532013000"


def echoes(secret: str) -> list[str]:
    """A credential as the server of its own connection can send it back."""
    encoded = base64.b64encode(f"Bearer {secret}".encode())
    told = [secret, encoded.decode(), secret.encode().hex().upper(), secret[::-1], base64.b64encode(encoded).decode()]
    return [
        f"seen: {one} end"
        for one in [*told, *(base64.b64encode((b"\0" * at) + secret.encode()).decode() for at in range(3))]
    ]


def says(chunk: list[Planted]) -> str:
    return "; ".join(one.text for one in chunk)


EVERYTHING = says(list(SHAPES.values()))


def cut(one: Planted, most: int, before: str = "") -> str:
    """A text that is cut at `most` characters where it is too long for a record: four before the end of the secret."""
    ends = one.text.index(one.secret) + len(one.secret)
    return (before + "x " * most)[: most + 3 - ends] + " " + one.text


def results() -> list[Any]:
    """Everything secret, in the places that a result has."""
    texts = {name: one.text for name, one in SHAPES.items()}
    member_names: dict[str, Any] = {one.text.strip(): {"n": 1} for one in SHAPES.values()}
    long = [f"{'words ' * 300}{one.text} {'and more ' * 300}" for one in SHAPES.values()]
    return [{"nested": {"list": [texts]}}, member_names, {"long": long}, {"json": json.dumps(texts)}]


class Tools:
    """The tools of functions: what they got, and what they say."""

    def __init__(self) -> None:
        self.got: list[str] = []

    def adapter(self) -> FunctionAdapter:
        functions = {name: getattr(self, name) for name in ARGUMENTS}
        of = {
            "number": {"type": "integer"},
            "copies": {"type": "integer"},
            "how": {"type": "string"},
            "text": {"type": "string"},
        }
        strict = {"type": "object", "additionalProperties": {"type": "integer"}}
        capabilities = [
            {
                "name": name,
                "kind": "write" if name in WRITES else "read",
                "risk_level": "write_reversible" if name in WRITES else "read",
                "approval_mode": "destructive" if name in WRITES else "read_only",
                "input_schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {one: of[one] for one in arguments},
                    "required": arguments,
                },
                "output_schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"is": strict if name == "strict" else {}},
                },
                "idempotency": {"strategy": "none"},
                "timeout_s": 10,
                "output_integrity": "trusted",
                "description": name,
            }
            for name, arguments in ARGUMENTS.items()
        ]
        told = {
            "adapter_id": "desk",
            "type": "function",
            "version": "1",
            "external": False,
            "capabilities": capabilities,
        }
        return FunctionAdapter(AdapterDefinition.model_validate(told), functions)

    def result(self, args: Mapping[str, Any], _context: CallContext) -> Any:
        return {"is": results()[args["number"]]}

    def refuses(self, args: Mapping[str, Any], _context: CallContext) -> Any:
        chunk = CHUNKS[args["number"]]
        if args["how"] == "code":
            raise BusinessError(chunk[0].text, says(chunk))
        raise BusinessError("refused", cut(chunk[0], MAX_TEXT_CHARS) if args["how"] == "cut" else says(chunk))

    def strict(self, args: Mapping[str, Any], _context: CallContext) -> Any:
        return {"is": {one.text.strip(): "no number" for one in CHUNKS[args["number"]]}}

    def raises(self, _args: Mapping[str, Any], _context: CallContext) -> Any:
        raise RuntimeError(EVERYTHING)

    def is_down(self, _args: Mapping[str, Any], _context: CallContext) -> Any:
        raise Unavailable("desk", EVERYTHING)

    def loses(self, _args: Mapping[str, Any], _context: CallContext) -> Any:
        raise LostReply(EVERYTHING)

    def put(self, args: Mapping[str, Any], context: CallContext) -> Any:
        return self.post(args, context)

    def post(self, args: Mapping[str, Any], _context: CallContext) -> Any:
        self.got.append(args["text"])
        return {"is": args["text"]}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[McpAdapter]:
    """An adapter of an MCP server that says what is in a file."""
    monkeypatch.setenv("LAB_TOKEN", LAB_TOKEN)
    folder = tmp_path / "server"
    folder.mkdir()
    said = [says(chunk) for chunk in CHUNKS]
    texts = [
        *said,
        *(f"error {text}" for text in said),
        *(cut(one, 2_000, "error ") for one in SHAPES.values()),
        *echoes(LAB_TOKEN),
        f"error {' '.join(echoes(LAB_TOKEN))}",
    ]
    (folder / "calls.leaks").write_text(json.dumps(texts))
    file = asyncio.run(drafted(hostile("leaks", folder) | {"env": ["LAB_TOKEN"]}, folder, reads=["say"]))
    adapter = adapter_of(file, folder)
    adapter.count = len(texts)  # type: ignore[attr-defined]
    yield adapter
    adapter.close()


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An adapter of an HTTP API that says a part of the secrets, and all that it was sent."""
    monkeypatch.setenv("API_TOKEN", API_TOKEN)
    (tmp_path / "password").write_text(API_PASSWORD)
    (tmp_path / "password").chmod(0o600)

    def answer(asked: Asked) -> Answer:
        kind, number = asked.path.split("/")[-2:]
        own = [str(asked.headers), *echoes(API_TOKEN), *echoes(API_PASSWORD), *echoes(API_PASSWORD.partition(":")[2])]
        said = {"said": [one.text for one in CHUNKS[int(number)]], "own": own}
        raw = json.dumps(said) if kind != "cut" else cut(CHUNKS[int(number)][0], MAX_ERROR_CHARS)
        return (200 if kind == "ok" else 422), raw.encode(), {"Content-Type": "application/json"}

    paths = [{"name": one, "in": "path", "required": True, "schema": {"type": "string"}} for one in ("kind", "number")]
    raw = document({"/{kind}/{number}": {"get": {"operationId": "get", "parameters": paths, "responses": OK}}})
    with serving(answer) as url:
        file = draft_openapi("shop", raw, server=url, internal=True, reads=["get"]).to_json()
        file["connection"]["credentials"] = {
            "token": {"place": "header", "name": "X-Token", "env": "API_TOKEN"},
            "password": {"place": "basic", "file": "password"},
        }
        file["operations"]["get"]["credentials"] = ["token", "password"]
        file["definition"]["capabilities"][0]["output_integrity"] = "trusted"
        definition = AdapterDefinition.model_validate(file["definition"])
        yield openapi_adapter(file["connection"], definition, file["operations"], tmp_path)


def pack(tools: Tools, *adapters: Any) -> Any:
    planned = [
        {"tool": "desk.result", "args": {"number": 1}},
        {"tool": "desk.put", "args": {"copies": 1, "text": {"from": "request", "pointer": "/input/context/text"}}},
    ]
    egress = [endpoint for adapter in adapters for endpoint in adapter.describe().egress]
    everything = [
        "desk.result",
        "desk.refuses",
        "desk.strict",
        "desk.raises",
        "desk.is_down",
        "desk.loses",
        "desk.post",
        "lab.say",
        "shop.get",
    ]
    return contextos.pack(
        "desk",
        version="1.0.0",
        tenant=TENANT,
        tools=[tools.adapter(), *adapters],
        who=["deployer"],
        intents={
            "desk.free": {"tools": everything},
            "desk.planned": {"tools": ["desk.result", "desk.put"], "steps": planned},
        },
        auto_approve=[
            {"tools": ["desk.post"], "bounds": {"copies": {"min": 0, "max": 5}, "text": {"any": True}}},
            {"tools": ["desk.put", "desk.loses"], "bounds": {"copies": {"min": 0, "max": 5}}},
        ],
        budget={"max_tool_calls": 50, "wall_clock_ms": 30_000},
        egress=egress,
    )


class Office:
    """A workspace in which an agent and planned runs meet all the secrets."""

    def __init__(self, path: Path, tools: Tools, adapters: tuple[Any, ...], collector: Collector) -> None:
        self.path, self.tools, self.adapters, self.collector = path, tools, adapters, collector
        self.pack = pack(tools, *adapters)
        self.runs: list[str] = []

    def open(self) -> Any:
        return contextos.open(self.path, adapters=list(self.pack.adapters), dev=True)

    def gate(self, app: Any, session: str) -> Any:
        gate = app.gate(session=session, user=ana(), agent="agt_deploy", intent="desk.free")
        self.runs += [gate.run_id] if gate.run_id not in self.runs else []
        return gate

    def invoke(self, app: Any, name: str, context: Mapping[str, Any]) -> Any:
        body = {
            "request_id": name,
            "session_id": name,
            "tenant_id": TENANT,
            "user": ana().to_json(),
            "agent": {name: people()[TENANT]["agents"][0][name] for name in ("agent_id", "workload_identity")},
            "context_pack_refs": ["desk@1.0.0"],
            "input": {"intent": "desk.planned", "message": "post it", "context": dict(context)},
            "mode": "stream",
            "runtime": {},
            "trace": {"trace_id": "0" * 31 + "1", "span_id": "0" * 15 + "1"},
        }
        view = app.deployment.invoke(body)
        self.runs.append(view.run_id)
        return view


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture
def office(tmp_path: Path, lab: McpAdapter, api: Any, collector: Collector) -> Office:
    path = tmp_path / "workspace"
    path.mkdir()
    make_workspace(path)
    directory = json.loads((path / "directory.json").read_text())
    [olga] = [one for one in directory[TENANT]["approvers"] if one["approver_id"] == "olga"]
    olga["roles"].append("auditor")
    olga["granted_by"]["auditor"] = "ceo"
    (path / "directory.json").write_text(json.dumps(directory))
    egress = ", ".join(json.dumps(one) for one in api.describe().egress)
    allowed = 'unsafe = ["unsafe_local_directory", "unsafe_local_keys"]'
    tables = f'[egress]\n{TENANT} = [{egress}]\n[telemetry]\notlp_url = "{collector.url}"\n'
    (path / "contextos.toml").write_text(f'{allowed}\nwitness = "heads"\n{tables}')
    return Office(path, Tools(), (lab, api), collector)


def kept(office: Office) -> Iterator[tuple[str, bytes]]:
    """Every file of the workspace, and every row of its database with what is compressed in it, by its place."""
    for file in sorted(office.path.rglob("*")):
        if file.is_file():
            yield file.name, file.read_bytes()
    with closing(sqlite3.connect(office.path / "contextos.db")) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        with entries_as_rows(connection):
            tables = connection.execute(
                "SELECT name FROM sqlite_master UNION SELECT name FROM sqlite_temp_master"
            ).fetchall()
            for (table,) in tables:
                try:
                    rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
                except sqlite3.OperationalError:
                    continue
                for row in rows:
                    yield (
                        f"row of {table}",
                        b" ".join(one if isinstance(one, bytes) else str(one).encode() for one in row),
                    )


def leaks(places: Iterator[tuple[str, bytes]]) -> list[tuple[str, str]]:
    """(place, shape) of each secret that is in one of the places, in any form."""
    secrets = {name: one.secret for name, one in SHAPES.items()} | OWN
    wanted = {form.encode(): name for name, secret in secrets.items() for form in [*forms(secret), secret[:-4]]}
    return sorted({(place, name) for place, raw in places for form, name in wanted.items() if form in raw})


def shown(office: Office, app: Any) -> Iterator[tuple[str, bytes]]:
    """What is read of the runs: views, stories, exports, and what commands print."""
    by = contextos.Actor.with_key("olga", SEEDS["olga"])
    for run_id in office.runs:
        yield "view", repr(app.deployment.view(TENANT, run_id)).encode()
        yield "story", repr(app.runs.timeline(app.deployment.view(TENANT, run_id))).encode()
    yield "export", app.call(export_runs, app.deployment, TENANT, office.runs, by=by)


def test_no_planted_secret_is_kept_and_the_work_is_done(
    office: Office, lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    log = io.StringIO()
    handler = configure(log, as_json=True)
    answers: list[Any] = []
    try:
        with office.open() as app:
            app.install(office.pack, by=contextos.Actor.with_key("olga", SEEDS["olga"]))

            def call(name: str, args: dict[str, Any]) -> None:
                # A session has few calls.
                gate = office.gate(app, f"s{len(answers) // 12}")
                answers.append(gate.call(name, args, call_id=str(len(answers))))

            for number in range(len(results())):
                call("desk.result", {"number": number})
            for number in range(len(CHUNKS)):
                for how in ("plain", "cut", "code"):
                    call("desk.refuses", {"number": number, "how": how})
                for how in ("ok", "no", "cut"):
                    call("shop.get", {"kind": how, "number": str(number)})
            for number in range(lab.count):
                call("lab.say", {"text": str(number)})
            call("desk.raises", {})
            call("desk.is_down", {})
            assert "circuit" not in repr(answers)
            reads = len(answers)
            for one in SHAPES.values():
                call("desk.post", {"text": f"key: {one.text}", "copies": 1})
                call("lab.say", {"text": one.text})
            assert all(isinstance(one, Done) for one in answers[:reads]), [
                one for one in answers if not isinstance(one, Done)
            ][:3]
            refused = [one for one in answers[reads:] if isinstance(one, Refused)]
            assert len(refused) == 2 * len(SHAPES)
            assert {reason.code for one in refused for reason in one.reasons} == {"argument_out_of_bounds"}
            assert all(
                "a `secret` was redacted from the argument at `/text`; send a reference to it" in str(one)
                for one in refused
            )
            call("desk.post", {"text": PLAIN, "copies": 1})
            assert isinstance(answers[-1], Done), answers[-1]
            assert office.tools.got == [PLAIN]
            assert answers[-1].output == {"is": PLAIN}
            sessions = len(answers) // 12 + 1
            for number in range(len(CHUNKS)):
                # An output that does not fit is withheld.
                strict = office.gate(app, f"strict{number}")
                withheld = strict.call("desk.strict", {"number": number}, call_id="1")
                assert withheld.withheld.code == "unsafe_output"
                answers.append(withheld)
                strict.finish("escalated")
            for number in range(sessions):
                office.gate(app, f"s{number}").finish("escalated")
            ended = list(office.runs)
            waits = office.gate(app, "lost").call("desk.loses", {"copies": 1}, call_id="1")
            assert isinstance(waits, Waiting)
            for name, one in SHAPES.items():
                with pytest.raises(InvalidInput):
                    office.invoke(app, f"req_{name.replace(' ', '_')}", {"text": one.text})
            view = office.invoke(app, "req_plain", {"text": PLAIN})
            assert view.state == "completed", view
            assert office.tools.got == [PLAIN, PLAIN]
            for run_id in [*ended, view.run_id]:
                app.call(replay, app.deployment, TENANT, run_id)
            assert leaks(shown(office, app)) == []
    finally:
        logging.getLogger("contextos").removeHandler(handler)
    for run_id in office.runs:
        assert run_command_line(["runs", "show", run_id, "-w", str(office.path), "--json"]) == 0
    said = capsys.readouterr()
    assert office.runs[0] in said.out
    printed = [("log", log.getvalue().encode()), ("stdout", said.out.encode()), ("stderr", said.err.encode())]
    assert "foreign code raised" in log.getvalue()
    told = [("answer", repr(answers).encode())]
    assert leaks(iter([*printed, *told])) == []
    assert leaks(kept(office)) == []
    assert len(office.collector.named("invoke_agent agt_deploy")) >= len(ended)
    assert leaks(iter([("collector", one) for one in office.collector.raw])) == []
