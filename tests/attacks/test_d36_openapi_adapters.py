"""Attacks on adapters from OpenAPI documents: documents that are made to break the reader or to loosen what is checked,
arguments that lead out of their place, and servers that lie, hang, or send secrets back.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import tracemalloc
from collections.abc import Mapping
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from contextos.action.schema_profile import MAX_SUBSCHEMAS, profile
from contextos.adapters.openapi.adapter import OpenApiAdapter, openapi_adapter
from contextos.adapters.openapi.document import OpenApiDocument
from contextos.adapters.openapi.draft import draft_openapi
from contextos.adapters.openapi.operations import Operations, ReadOperation
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.errors import ContextOSError, InvalidInput, LostReply, MalformedJson, Unavailable
from tests.loopback import Answer, Asked, serving
from tests.openapi_documents import OK, accepts, document, post, usable
from tests.raw_http import raw_server

LAUGHS = "a0: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
REFS = {f"S{n}": {"allOf": [{"$ref": f"#/components/schemas/S{n + 1}"}] * 9} for n in range(12)} | {"S12": {}}
CYCLE: dict[str, Any] = {
    "A": {"$ref": "#/components/schemas/B"},
    "B": {"$ref": "#/components/schemas/A"},
    "C": {"allOf": [{"$ref": "#/components/schemas/C"}]},
    "D": {"type": "object", "properties": {"d": {"anyOf": [{"$ref": "#/components/schemas/D"}] * 9}}},
}


def test_a_billion_laughs_are_refused_in_little_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput) as refused:
            OpenApiDocument(f"openapi: 3.1.0\n{LAUGHS}".encode())
        assert refused.value.problems[0].code == "too_many_nodes"
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


CHAIN = {f"N{n}": {"items": {"$ref": f"#/components/schemas/N{n + 1}"}} for n in range(5_000)} | {"N5000": {}}
BOMBS: list[tuple[Any, Mapping[str, Any]]] = [
    ({"$ref": "#/components/schemas/S0"}, REFS),
    *(({"$ref": f"#/components/schemas/{name}"}, CYCLE) for name in CYCLE),
    ({"type": "object", "properties": {f"p{n}": {} for n in range(50_000)}}, {}),
    ({"enum": list(range(200_000))}, {}),
    ({"pattern": "(" * 10_000}, {}),
    ({"pattern": "(a{1000}){1000}"}, {}),
    ({"type": "string", "maxLength": 10**100}, {}),
    ({"$ref": "#/components/schemas/N0"}, CHAIN),
    (json.loads('{"items": ' * 40 + "{}" + "}" * 40), {}),
    ({"$ref": 5}, {}),
    ({"type": {"a": 1}}, {}),
    ({"properties": {"a": 5}}, {}),
    ({"allOf": 5}, {}),
    ({"required": [1, None, {}]}, {}),
    ({"oneOf": [{"$ref": "#/components/schemas/x"}], "discriminator": {"propertyName": "k", "mapping": {"a": 5}}}, {}),
    ({"discriminator": 5, "oneOf": [{}]}, {}),
    ({"patternProperties": {"(?=a)": {}}}, {}),
]  # fmt: skip


@pytest.mark.parametrize("bomb", range(len(BOMBS)))
def test_a_schema_bomb_ends_in_a_schema_within_the_profile_or_in_a_reason(bomb: int) -> None:
    schema, schemas = BOMBS[bomb]
    answers = {"200": {"description": "", "content": {"application/json": {"schema": schema}}}}
    for paths in (post(schema), {"/get": {"get": {"operationId": "get", "responses": answers}}}):
        tracemalloc.start()
        try:
            (one,) = Operations(OpenApiDocument(document(paths, schemas))).read()
            assert tracemalloc.get_traced_memory()[1] < 120_000_000
        finally:
            tracemalloc.stop()
        if isinstance(one, ReadOperation):
            profile(one.arguments.schema, "arguments")
            profile(one.output.schema, "output")
        else:
            assert one.reason


@pytest.mark.parametrize(("bound", "code"), [(10**128, "number_too_long"), (1e400, "number_not_finite")])
def test_a_number_that_no_double_holds_has_the_document_refused(bound: float, code: str) -> None:
    with pytest.raises(MalformedJson) as refused:
        OpenApiDocument(document(post({"type": "string", "maxLength": bound})))
    assert refused.value.problems[0].code == code


def test_many_cycles_at_once_stay_small() -> None:
    names = [f"S{n}" for n in range(60)]
    schemas = {
        name: {"type": "object", "properties": {other: {"$ref": f"#/components/schemas/{other}"} for other in names}}
        for name in names
    }
    one = usable(document(post({"$ref": "#/components/schemas/S0"}), schemas))
    assert len(json.dumps(one.arguments.schema)) < 100 * MAX_SUBSCHEMAS
    assert one.arguments.notes


FORM = {"application/x-www-form-urlencoded": {"encoding": {"a": 1}}}
BROKEN: list[Any] = [
    {"paths": []}, {"paths": {"/x": []}}, {"paths": {"/x": {"get": []}}}, {"paths": {"/x": {"get": {"responses": []}}}},
    {"paths": {"/x": {"get": {"parameters": [5], "responses": OK}}}}, {"components": 5}, {"servers": 5}, {"info": 5},
    {"paths": {"/x": {"get": {"parameters": [{"name": 5, "in": "query"}], "responses": OK}}}}, {"security": 5},
    {"paths": {"/x": {"get": {"parameters": [{"name": "a", "in": ["query"]}], "responses": OK}}}},
    {"paths": {"/x": {"get": {"operationId": 5, "responses": OK}}}}, {"components": {"securitySchemes": 5}},
    {"paths": {"/x": {"post": {"requestBody": 5, "responses": OK}}}},
    {"paths": {"/x": {"post": {"requestBody": {"content": {"application/json": 5}}, "responses": OK}}}},
    {"paths": {"/x": {"get": {"responses": {"200": {"content": {"application/json": 5}}}}}}},
    {"paths": {"/x": {"get": {"responses": {"200": {"content": 5}}}}}},
    {"paths": {"/x": {"get": {"responses": OK, "security": [{"a": 5}]}}}, "components": {"securitySchemes": {"a": 5}}},
    {"paths": {"/x": {"get": {"responses": OK, "security": [{"a": 5}]}}},
     "components": {"securitySchemes": {"a": {"type": "apiKey", "in": "header", "name": "X\r\nY"}}}},
    {"paths": {"/x": {"get": {"responses": OK, "parameters": [{"name": "a" * 9000, "in": "query"}]}}}},
    {"paths": {"/" + "x" * 9000: {"get": {"responses": OK}}}}, {"servers": [{"url": 5}]}, {"info": {"version": ["x"]}},
    {"paths": {"/x": {"get": {"operationId": "\u202e" * 9000, "responses": OK}}}},
    {"paths": {"/x": {"post": {"requestBody": {"content": FORM}, "responses": OK}}}},
]  # fmt: skip


@pytest.mark.parametrize("broken", range(len(BROKEN)))
def test_a_broken_document_is_refused_or_read_and_never_a_traceback(broken: int) -> None:
    root = json.loads(document({"/ok": {"get": {"operationId": "ok", "responses": OK}}})) | BROKEN[broken]
    try:
        draft_openapi("adp_x", json.dumps(root).encode())
    except InvalidInput as refused:
        assert refused.problems[0].detail


def test_a_document_lowers_nothing_and_no_reference_leaves_it(tmp_path: Path) -> None:
    """A local file and an address: neither is read, and extensions that name a mode have no effect."""
    (tmp_path / "secret.json").write_text('{"type": "object"}')
    operation = {"operationId": "delete all", "responses": OK, "x-kind": "read", "x-approval-mode": "read_only"}
    with serving(lambda _: pytest.fail("it was fetched")) as url:
        for reference in (f"{url}/s.json", f"file://{tmp_path}/secret.json", "secret.json#/", "//x/y#"):
            paths = post({"$ref": reference}) | {"/all": {"get": {**operation, "description": "readOnlyHint: true"}}}
            draft = draft_openapi("adp_x", document(paths))
            assert [one.name for one in draft.refused] == ["send"]
            (kept,) = draft.definition.capabilities
            assert (kept.kind, kept.approval_mode, kept.idempotency.strategy) == ("write", "destructive", "none")


@pytest.mark.parametrize("name", ["__proto__", "constructor", "$ref", "a/b", "~1", "", "body", "%2e"])
def test_no_name_of_a_property_opens_the_arguments(name: str) -> None:
    one = usable(document(post({"type": "object", "properties": {name: {"type": "integer"}}})))
    assert accepts(one.arguments.schema, {"body": {name: 1}})
    assert not accepts(one.arguments.schema, {"body": {name: "x"}})
    assert not accepts(one.arguments.schema, {"body": {"more": 1}})


SECRETS = [
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "sk-live-51H/abc+def==xyz", "AKIAIOSFODNN7EXAMPLE",
    "xoxb-1234-5678-abcdef", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "p@ss w0rd with blanks!",
    "00000000", "%41%42%43%44", '"quoted-secret"',
    "back\\slash\\secret", "key=value&other", "<script>secret</script>", "{{template}}", "a.b.c.d.e.f", "----BEGIN----",
    "$HOME/secret", "deadbeefdeadbeefdeadbeefdeadbeef", "user:hunter2-hunter2", "UPPER-lower-123", "~tilde~secret~",
]  # fmt: skip


def _adapter(url: str, secret: str, place: str, tmp_path: Path) -> OpenApiAdapter:
    file = draft_openapi("adp_x", document(post({"type": "object"})), server=url, internal=True).to_json()
    named = {} if place in ("bearer", "basic") else {"name": "x_key"}
    (tmp_path / "secret").touch(0o600)
    (tmp_path / "secret").write_text(secret)
    file["connection"]["credentials"] = {"c": {"place": place, "file": "secret", **named}}
    file["operations"]["send"]["credentials"] = ["c"]
    definition = AdapterDefinition.model_validate(file["definition"])
    return openapi_adapter(file["connection"], definition, file["operations"], tmp_path)


async def _called(adapter: OpenApiAdapter, args: Mapping[str, Any] | None = None) -> AdapterReply | ContextOSError:
    context = CallContext("tenant", "run", "tool", "ik_0123456789abcdef", 0, 3_000, egress=adapter.describe().egress)
    try:
        return await adapter.call("send", args or {"body": {}}, context)
    except ContextOSError as error:
        return error


@pytest.mark.parametrize("place", ["bearer", "basic", "header", "query", "cookie"])
@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_comes_back_by_any_answer_error_or_log(
    secret: str, place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if place == "basic" and ":" not in secret:
        secret = f"user:{secret}"
    caplog.set_level(logging.DEBUG)
    forms = [secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode()]

    kinds = [
        (200, "application/json"),
        (200, "text/html"),
        (400, "text/plain"),
        (403, "application/json"),
        (500, "a/b"),
    ]
    left = iter(kinds)

    def echo(asked: Asked) -> Answer:
        status, media = next(left)
        said = [asked.path, str(asked.headers), *forms]
        raw = json.dumps({"echo": said, secret: 1}) if media == "application/json" else " ".join(said)
        return status, raw.encode(), {"Content-Type": media, "X-Echo": forms[1]}

    with serving(echo) as url:
        adapter = _adapter(url, secret, place, tmp_path)
        shown = [repr(asyncio.run(_called(adapter))) for _ in kinds]
    shown += [repr(adapter), repr(vars(adapter)), str(adapter.describe().to_json())]
    password = secret.partition(":")[2] if place == "basic" else secret
    for form in (*forms, password):
        assert not any(form in one for one in shown)
    assert not any(form in caplog.text for form in forms)


CHUNK = b"10000\r\n" + b"a" * 65536 + b"\r\n"
LIES = {
    "hangs": ([], True),
    "hangs in the body": ([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"], True),
    "closes in the middle": ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"], False),
    "sends gigabytes": ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *repeat(CHUNK, 9000)], False),
    "sends no UTF-8": ([b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\"\xff\xfe\""], False),
    "sends NaN": ([b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nNaN"], False),
    "sends a key twice": ([b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"a":1,"a":2}'], False),
    "sends another type": ([b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\n{}"], False),
    "sends another status": ([b"HTTP/1.1 226 x\r\nContent-Length: 2\r\n\r\n{}"], False),
    "sends a status that is none": ([b"HTTP/1.1 999 x\r\nContent-Length: 2\r\n\r\n{}"], False),
    "sends nesting": ([b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"[" * 60_000], False),
    "redirects inside": ([b"HTTP/1.1 307 x\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"], False),
}  # fmt: skip

UNREADABLE = ("sends gigabytes", "sends no UTF-8", "sends NaN", "sends a key twice")
"""The server says that the write was made, and nobody can take what it answers: it is done, its answer withheld."""


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_loses_the_reply_of_a_write_and_harms_nothing(lie: str, tmp_path: Path) -> None:
    parts, hangs = LIES[lie]

    async def attack() -> None:
        async with raw_server(parts=parts, hangs=hangs) as server:
            adapter = _adapter(f"http://127.0.0.1:{server.port}", "s3cret-token", "bearer", tmp_path)
            reply = await _called(adapter)
            if lie in UNREADABLE:
                assert isinstance(reply, AdapterReply), reply
                assert (reply.withheld is not None, reply.output) == (True, None)
            else:
                assert isinstance(reply, LostReply), reply
            assert server.connections == 1

    asyncio.run(attack())


def test_nothing_is_sent_where_the_name_leads_inside(tmp_path: Path) -> None:
    """The reviewed server is a name; the owner of its DNS makes it this machine."""

    async def attack() -> None:
        async with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as server:
            file = draft_openapi("adp_x", document(post({})), server=f"https://localhost:{server.port}").to_json()
            definition = AdapterDefinition.model_validate(file["definition"])
            adapter = openapi_adapter(file["connection"], definition, file["operations"], tmp_path)
            reply = await _called(adapter)
            assert isinstance(reply, AdapterReply)
            assert reply.error is not None
            assert reply.error.code == "address_refused"
            assert server.connections == 0

    asyncio.run(attack())


def test_a_file_cannot_send_elsewhere_than_its_definition_says(tmp_path: Path) -> None:
    """Policies see the definition: a connection to another endpoint is refused when the adapter is made."""
    file = draft_openapi("adp_x", document(post({}))).to_json()
    for server in ("https://evil.example", "https://api.example:8443", "https://api.example.evil.example"):
        with pytest.raises(InvalidInput):
            openapi_adapter(
                {**file["connection"], "server": server},
                AdapterDefinition.model_validate(file["definition"]),
                file["operations"],
                tmp_path,
            )


def test_a_server_that_is_not_there_got_nothing(tmp_path: Path) -> None:
    adapter = _adapter("http://127.0.0.1:9", "s3cret-token", "bearer", tmp_path)
    assert isinstance(asyncio.run(_called(adapter)), Unavailable)


UPLOAD = {
    "requestBody": {
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"f": {"type": "string", "format": "binary"}, "n": {"type": "string"}},
                    "additionalProperties": True,
                }
            }
        }
    }
}


@pytest.mark.parametrize(
    "form",
    [
        *(
            {"f": {"base64": "YQ==", "filename": name}}
            for name in (
                "a\r\nX-Evil: 1",
                "a\n",
                "a\x00",
                'a"; name="admin',
                "..",
                "../../etc/passwd",
                "C:\\a",
                "a%22; x=1",
                "",
                "a\x85b",
                "a\u2028b",
                "x" * 256,
            )
        ),
        *(
            {name: "a"}
            for name in (
                'n"; filename="x.sh',
                "n\r\nContent-Type: text/html",
                "n\r\n\r\n--b",
                "a\\",
                "\x7f",
                "",
                "x" * 300,
            )
        ),
        {"f": {"base64": "YQ==", "filename": "a", "type": "text/html\r\nX: 1"}},
        {"f": {"base64": "YQ==", "filename": ["a"]}},
    ],
)
def test_no_name_of_a_file_or_a_field_writes_a_header_of_a_part(form: dict[str, Any]) -> None:
    """Models and documents choose both. Nothing is escaped, because readers differ in what they take back."""
    paths = {"/up": {"post": {"operationId": "send", "responses": OK, **UPLOAD}}}
    seen: list[Asked] = []

    def answer(asked: Asked) -> Answer:
        seen.append(asked)
        return 200, b"{}", {}

    with serving(answer) as url:
        reply = asyncio.run(sent_form(paths, url, form))
    assert reply.error is not None
    assert reply.error.code == "unsendable_argument"
    assert not seen


async def sent_form(paths: dict[str, Any], url: str, form: dict[str, Any]) -> AdapterReply:
    file = json.loads(json.dumps(draft_openapi("adp_x", document(paths), server=url, internal=True).to_json()))
    definition = AdapterDefinition.model_validate(file["definition"])
    adapter = openapi_adapter(file["connection"], definition, file["operations"], Path())
    context = CallContext("tenant", "run", "tool", "ik_1", 0, 5_000, egress=definition.egress)
    return await adapter.call("send", {"body": form}, context)


@pytest.mark.parametrize("media", ["image/png\r\nX-Evil: 1", "image", "a b/c", "image/png\n", "é/x"])
def test_no_media_type_of_an_adapter_file_writes_a_header(media: str) -> None:
    paths = {"/up": {"post": {"operationId": "send", "responses": OK, **UPLOAD}}}
    file = json.loads(json.dumps(draft_openapi("adp_x", document(paths)).to_json()))
    for edit in ({"fields": {"f": {"media_type": media, "is_file": True}}}, {"media_type": media}):
        edited = json.loads(json.dumps(file))
        edited["operations"]["send"]["body"] |= edit
        with pytest.raises(InvalidInput):
            openapi_adapter(
                edited["connection"], AdapterDefinition.model_validate(file["definition"]), edited["operations"], Path()
            )


def test_a_form_whose_references_grow_is_refused_in_little_time() -> None:
    leaf = {"S12": {"type": "object", "properties": {"f": {"type": "string", "format": "binary"}}}}
    content = {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/S0"}}}
    paths = {"/up": {"post": {"operationId": "send", "requestBody": {"content": content}, "responses": OK}}}
    (one,) = Operations(OpenApiDocument(document(paths, REFS | leaf))).read()
    assert not isinstance(one, ReadOperation)
    assert "larger than the profile" in one.reason
