"""D41: a call carries a token that was issued for this call, for its user through its agent, and for nothing more.

The issuer lies, hangs or is gone; the API sends the token back in every disguise; the agent was revoked; a second
tenant has the same names. The token is in no database, log, record, replay or export.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

import contextos
from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.oauth.token_exchange import TokenExchange
from contextos.adapters.outbound import destination
from contextos.audit.export import export_runs
from contextos.audit.replay import replay
from contextos.contracts.entries.reading import read_body
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.errors import InvalidInput, InvalidSettings, Unavailable
from contextos.store.shared.clock import SystemClock
from contextos.testing import TEST_OPERATOR, MemoryDirectory, Person, in_memory
from contextos.workspace import make_keys
from contextos.workspace.settings import Settings
from tests.authorization_server import (
    AUDIENCE,
    CLIENT,
    JSON,
    SECRET,
    AuthorizationServer,
    Shop,
    adapter_of,
    authorization_server,
    egress_of,
    file_of,
    pack_of,
    people,
    port_of,
    shop,
    trusts,
)
from tests.loopback import Answer, Asked, serving
from tests.raw_http import raw_server
from tests.servers.adapters import agent_adapter, agent_at, call_context, drafted, drafted_agent, opened
from tests.servers.hostile_agent import hostile_agent
from tests.servers.processes import mcp_connection

READ, PAY = ("shop.read", {"id": "ord_1"}), ("shop.pay", {"body": {"amount": 5}})


class Place:
    """A deployment in memory, an authorization server and an API."""

    def __init__(self, app: Any, server: AuthorizationServer, api: Shop, directory: Any) -> None:
        self.app, self.server, self.api, self.directory = app, server, api, directory

    def gate(self, session: str = "s1", tenant: str = "acme") -> Any:
        return self.app.gate(session=session, user="ana", token="tok_ana", agent="agt_shop", tenant=tenant)

    def entries(self, run_id: str, tenant: str = "acme") -> list[Any]:
        store = self.app.deployment.ports.stores.tenant(tenant)
        return list(self.app.call(store.read, run_id))

    def exchanged(self, run_id: str, tenant: str = "acme") -> list[dict[str, Any]]:
        kind = "credential.exchanged"
        return [read_body(one) for one in self.entries(run_id, tenant) if one.kind == kind]

    def pay(self, gate: Any, call_id: str = "pay") -> Any:
        assert isinstance(gate.call(*PAY, call_id=call_id), Waiting)
        self.app.call(Person("omar").answer, self.app, gate.view())
        return gate.call(*PAY, call_id=call_id)


@contextmanager
def place(*, tenants: tuple[str, ...] = ("acme",), **more: Any) -> Iterator[Place]:
    with authorization_server() as server, shop() as api:
        file = file_of(api.url)
        (more.pop("edit", None) or (lambda _: None))(file)
        adapter = more.pop("wrap", lambda it: it)(adapter_of(file))
        directory = people(tenants)
        first, *others = [pack_of(adapter, tenant) for tenant in tenants]
        opened = in_memory(
            lint=False,
            packs=[first, *(one.expansion.document for one in others)],
            directory=directory,
            credentials=more.pop("credentials", None) or port_of(server),
            egress=egress_of(api.url, tenants=tenants),
        )
        with opened as app:
            trusts(server, app)
            yield Place(app, server, api, directory)


@pytest.mark.requirement("A-CREDENTIAL-OWN")
def test_the_api_hears_the_user_through_the_agent_and_each_call_has_a_token_of_its_own() -> None:
    with place() as here:
        gate = here.gate()
        for answer in (gate.call(*READ, call_id="1"), gate.call(*READ, call_id="2"), here.pay(gate)):
            assert isinstance(answer, Done), answer
            assert answer.error is None
        assert [one["sub"] for one in here.api.served] == ["ana"] * 3
        assert {one["act"]["sub"] for one in here.api.served} == {"agent:acme/shop@1.0.0"}
        assert [one["scope"] for one in here.api.served] == ["orders:read", "orders:read", "refunds:write"]
        tokens = [token for token, _ in here.api.seen]
        assert tokens == here.server.issued
        assert len(set(tokens)) == 3
        recorded = [one["credential"] for one in here.exchanged(gate.run_id)]
        assert {one["subject"] for one in recorded} == {"ana"}
        assert [one["scopes"] for one in recorded] == [["orders:read"], ["orders:read"], ["refunds:write"]]
        kinds = [one.kind for one in here.entries(gate.run_id)]
        sent = [at for at, kind in enumerate(kinds) if kind == "tool.dispatching"]
        assert all(kinds[at - 1] == "credential.exchanged" for at in sent)
        gate.finish("approved")
        asked = len(here.server.asked)
        assert here.app.call(replay, here.app.deployment, "acme", gate.run_id).compared
        assert len(here.server.asked) == asked, "a replay exchanges nothing"


LIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a broader scope": ({"scope": "orders:read admin"}, {}),
    "another scope": ({"scope": "admin"}, {}),
    "no scope at all": ({"scope": ""}, {}),
    "a scope that is not a text": ({"scope": ["orders:read"]}, {}),
    "a longer life": ({"expires_in": 86_400}, {}),
    "no end": ({"expires_in": None}, {}),
    "an end that was": ({"expires_in": 0}, {}),
    "an end as a text": ({"expires_in": "120"}, {}),
    "an end that is true": ({"expires_in": True}, {}),
    "no bearer token": ({"token_type": "N_A"}, {}),
    "a token with a proof": ({"token_type": "DPoP"}, {}),
    "an ID token": ({"issued_token_type": "urn:ietf:params:oauth:token-type:id_token"}, {}),
    "a token of no type": ({"issued_token_type": None}, {}),
    "a refresh token": ({"refresh_token": "rt-0123456789abcdef"}, {}),
    "no token": ({"access_token": None}, {}),
    "a short token": ({"access_token": "abc"}, {}),
    "a token in two lines": ({"access_token": "0123456789abcdef\r\nX-Evil: 1"}, {}),
    "a token for another service": ({}, {"aud": "https://bank.example"}),
    "a token for two services": ({}, {"aud": [AUDIENCE, "https://bank.example"]}),
    "a token that says more": ({}, {"scope": "orders:read admin"}),
    "a token that says an object": ({}, {"scope": {"a": 1}}),
    "a token that lives longer than its answer": ({}, {"exp": 4_102_444_800}),
    "a token whose end is not a number": ({}, {"exp": "never"}),
}


@pytest.mark.requirement("A-CREDENTIAL-NO-MORE")
@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_nobody_asked_for_is_refused_and_nothing_is_sent(lie: str) -> None:
    with place() as here:
        here.server.answer, here.server.claims = LIES[lie]
        gate = here.gate()
        answer = gate.call(*READ, call_id="1")
        assert isinstance(answer, Refused), answer
        assert answer.reasons[0].code == "identity_refused"
        assert here.api.seen == []
        assert len(here.server.asked) == 1, "what is refused is not asked for again"
        [one] = here.exchanged(gate.run_id)
        assert one["failure"]["code"] == "identity_refused"
        here.server.answer, here.server.claims = {}, {}
        assert isinstance(gate.call(*READ, call_id="2"), Done), "the session goes on"


ERRORS: dict[str, Answer] = {
    "invalid_request": (400, b'{"error": "invalid_request"}', JSON),
    "invalid_target": (400, b'{"error": "invalid_target"}', JSON),
    "invalid_scope": (400, b'{"error": "invalid_scope"}', JSON),
    "invalid_client": (401, b'{"error": "invalid_client"}', JSON),
    "an error of its own": (400, b'{"error": "SECRET-SECRET"}', JSON),
    "a page": (403, b"<html>SECRET-SECRET</html>", {}),
    "no JSON": (200, b"SECRET-SECRET", JSON),
    "a list": (200, b"[]", JSON),
    "a member twice": (200, b'{"access_token": "a", "access_token": "b"}', JSON),
    "a redirect": (307, b"", {"Location": "http://169.254.169.254/token"}),
    "a success that is none": (201, b"{}", JSON),
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_the_issuer_refuses_the_call_with_a_remedy_and_quotes_nothing(error: str) -> None:
    with place() as here:
        here.server.instead = lambda _: ERRORS[error]
        gate = here.gate()
        answer = gate.call(*READ, call_id="1")
        assert isinstance(answer, Refused), answer
        assert len(here.server.asked) == 1
        assert here.api.seen == []
        [one] = here.exchanged(gate.run_id)
        said = one["failure"]["detail"]
        assert "; " in said, "it says what to do"
        assert ("`invalid_" in said) == error.startswith("invalid_")
        assert "SECRET" not in json.dumps(one) + repr(answer)
        assert not [one for one in here.entries(gate.run_id) if one.kind == "tool.dispatching"]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_write_that_the_issuer_refuses_is_not_dispatched_and_consumes_no_approval(keyed: bool) -> None:
    with place(edit=_keyed if keyed else None) as here:
        here.server.instead = lambda _: ERRORS["invalid_scope"]
        gate = here.gate()
        answer = here.pay(gate)
        assert isinstance(answer, Refused), answer
        assert [one.code for one in answer.reasons] == ["identity_refused"]
        assert here.api.seen == []
        kinds = [one.kind for one in here.entries(gate.run_id)]
        assert ("tool.refused" in kinds, "tool.dispatching" in kinds) == (True, False)
        here.server.instead = lambda _: None
        # It is judged anew; the first attempt hinders nothing.
        assert isinstance(here.pay(gate, "again"), Done)
        assert len(here.api.served) == 1
        view = gate.finish("approved")
        assert here.app.call(replay, here.app.deployment, "acme", view.run_id).record_hash == view.record["record_hash"]


def test_an_issuer_that_sends_back_what_it_got_puts_no_token_on_record() -> None:
    def echo(asked: Asked) -> Answer:
        said = {"error": "invalid_request", "error_description": asked.body.decode()}
        return 400, json.dumps(said).encode(), {**JSON, "X-Echo": asked.body.decode()[:500]}

    with place() as here:
        here.server.instead = echo
        gate = here.gate()
        assert isinstance(gate.call(*READ, call_id="1"), Refused)
        form = here.server.asked[0].body.decode()
        assert "eyJ" in form
        assert "eyJ" not in "".join((one.body or b"").decode() for one in here.entries(gate.run_id))


GONE: dict[str, Callable[[Asked], Answer]] = {
    "overloaded": lambda _: (503, b"", {}),
    "broken": lambda _: (500, b"token=0123456789abcdef", {}),
    "too busy": lambda _: (429, b"", {"Retry-After": "1"}),
    "endless": lambda _: (200, b" " * 200_000, JSON),
    "compressed": lambda _: (200, zlib.compress(b"{}"), {**JSON, "Content-Encoding": "deflate"}),
}


@pytest.mark.parametrize("fault", GONE)
def test_while_the_issuer_gives_no_answer_nothing_is_sent_and_a_read_is_tried_again(fault: str) -> None:
    with place() as here:
        here.server.instead = GONE[fault]
        gate = here.gate()
        answer = gate.call(*READ, call_id="1")
        assert isinstance(answer, Done), answer
        assert answer.error is not None
        assert answer.error.code == "tool_failed"
        assert here.api.seen == []
        assert len(here.server.asked) == 3, "as often as a read is tried"
        here.server.instead = lambda _: None
        assert isinstance(gate.call(*READ, call_id="2"), Done)


def test_a_write_that_got_no_credential_keeps_its_approval_and_happens_later() -> None:
    with place() as here:
        here.server.instead = GONE["overloaded"]
        gate = here.gate()
        with pytest.raises(Unavailable, match="nothing was sent"):
            here.pay(gate)
        assert here.api.seen == []
        assert not [one for one in here.entries(gate.run_id) if one.kind == "tool.dispatching"]
        here.server.instead = lambda _: None
        assert isinstance(gate.call(*PAY, call_id="pay"), Done)
        assert len(here.api.served) == 1


def test_a_write_with_a_key_waits_an_outage_of_the_issuer_out_and_happens_once() -> None:
    left = [GONE["overloaded"], GONE["broken"]]
    with place(edit=_keyed) as here:
        here.server.instead = lambda asked: left.pop()(asked) if left else None
        gate = here.gate()
        assert isinstance(here.pay(gate), Done)
        assert len(here.api.served) == 1
        codes = [one.get("failure", {}).get("code") for one in here.exchanged(gate.run_id)]
        assert codes == ["tool_failed", "tool_failed", None]


def test_an_issuer_that_hangs_or_never_ends_holds_nothing_up() -> None:
    async def attack(parts: Any, hangs: bool) -> None:
        async with raw_server(parts=parts, hangs=hangs) as raw:
            url = f"http://127.0.0.1:{raw.port}/token"
            port = TokenExchange(url, CLIENT, SECRET.encode, SystemClock(), internal=True, timeout_s=0.3)
            with place(credentials=port) as here:
                gate = here.gate()
                answer = await asyncio.to_thread(partial(gate.call, *READ, call_id="1"))
                assert isinstance(answer, Done), answer
                assert answer.error is not None
                assert here.api.seen == []

    chunk = b"10000\r\n" + b"a" * 65_536 + b"\r\n"
    endless = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *[chunk] * 1_000)
    for parts, hangs in (((), True), (endless, False), ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",), True)):
        asyncio.run(attack(parts, hangs))


def spaced(token: str) -> str:
    return " ".join(token)


DISGUISES: dict[str, Callable[[str], str]] = {
    "as it is": lambda it: it,
    "as a header": lambda it: f"Authorization: Bearer {it}",
    "in another case": str.upper,
    "percent encoded": partial(quote, safe=""),
    "in Base64": lambda it: base64.b64encode(it.encode()).decode(),
    "with spaces": spaced,
    "as HTML entities": lambda it: "".join(f"&#{ord(one)};" for one in it),
    "with escapes": lambda it: "".join(f"\\u{ord(one):04x}" for one in it),
}


@pytest.mark.parametrize("status", [200, 400, 403, 500])
@pytest.mark.parametrize("disguise", DISGUISES)
def test_an_api_that_sends_the_token_back_in_any_disguise_is_not_heard(
    disguise: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def echo(asked: Asked) -> Answer:
        said = DISGUISES[disguise](asked.headers["Authorization"].removeprefix("Bearer "))
        body = json.dumps({"echo": said, "in": [{said: 1}], "raw": asked.headers["Authorization"]})
        return status, body.encode(), {**JSON, "X-Echo": asked.headers["Authorization"]}

    with place() as here:
        here.api.instead = echo
        gate = here.gate()
        answer = gate.call(*READ, call_id="1")
        [token, *_] = here.server.issued
        stored = "".join((one.body or b"").decode() for one in here.entries(gate.run_id))
        shown = repr(answer) + caplog.text + stored
        assert DISGUISES[disguise](token) not in shown
        assert token not in shown
        assert token.split(".")[2] not in shown


def test_a_revoked_agent_gets_no_token_also_not_for_a_read() -> None:
    with place() as here:
        gate = here.gate()
        assert isinstance(gate.call(*READ, call_id="1"), Done)
        known: MemoryDirectory = here.app.deployment.ports.directory
        known._people["acme"]["agents"]["agt_shop"] = known._people["acme"]["agents"]["agt_shop"].model_copy(
            update={"lifecycle": "suspended"}
        )
        answer = gate.call(*READ, call_id="2")
        assert isinstance(answer, Refused), answer
        assert answer.reasons[0].code == "identity_refused"
        assert len(here.server.asked) == 1, "the issuer was not asked"


def test_a_token_of_one_tenant_is_used_for_no_other() -> None:
    with place(tenants=("acme", "umbra")) as here:
        gates = {tenant: here.gate("same", tenant) for tenant in ("acme", "umbra")}
        for number in range(2):
            for tenant, gate in gates.items():
                assert isinstance(gate.call(*READ, call_id=str(number)), Done), tenant
        assert [one["tenant"] for one in here.api.served] == ["acme", "umbra"] * 2
        assert [one["tenant_id"] for one in here.server.subjects] == ["acme", "umbra"] * 2
        assert [one["tenant_id"] for one in here.server.actors] == ["acme", "umbra"] * 2
        assert len({token for token, _ in here.api.seen}) == 4


def test_neither_token_of_the_runtime_passes_for_the_other() -> None:
    """An API or a rogue issuer that has one of both cannot show it as the other, or to another issuer."""
    with place() as here:
        assert isinstance(here.gate().call(*READ, call_id="1"), Done)
        form = here.server.forms[0]
        for kind, token in (("ctxid+jwt", form["subject_token"]), ("ctxsub+jwt", form["actor_token"])):
            with pytest.raises(AssertionError, match="another kind"):
                here.server._verified(token, kind)
        here.server.url = "https://other.example/token"
        with pytest.raises(AssertionError, match="another issuer"):
            here.server._verified(form["subject_token"], "ctxsub+jwt")


def test_no_token_that_the_user_brought_is_sent_anywhere() -> None:
    """The run has a delegation by reference. Neither the reference nor what it names leaves the machine."""
    with place() as here:
        gate = here.gate()
        assert isinstance(gate.call(*READ, call_id="1"), Done)
        sent = [one.body.decode() + str(one.headers) for one in here.server.asked]
        decoded = json.dumps([here.server.subjects, here.server.actors])
        assert "tok_ana" not in "".join(sent) + decoded + repr(here.api.seen)
        assert {token for token, _ in here.api.seen} == set(here.server.issued)


def test_without_a_delegation_or_a_scope_there_is_no_such_tool() -> None:
    with authorization_server() as server, shop() as api:
        adapter = adapter_of(file_of(api.url))
        for directory, token in ((people(), None), (people(scopes=("refunds:write",)), "tok_ana")):
            given: dict[str, Any] = {"credentials": port_of(server), "egress": egress_of(api.url)}
            with in_memory(packs=[pack_of(adapter)], directory=directory, **given, lint=False) as app:
                trusts(server, app)
                answer = app.gate(session="s1", user="ana", token=token, agent="agt_shop").call(*READ, call_id="1")
                assert isinstance(answer, Refused), answer
                assert answer.reasons[0].code == "tool_not_in_manifest"
        assert server.asked == []


def test_a_deployment_without_an_issuer_does_not_open() -> None:
    adapter = adapter_of(file_of("http://127.0.0.1:9"))
    opened = in_memory(packs=[pack_of(adapter)], directory=people(), egress=egress_of("http://127.0.0.1:9"), lint=False)
    with pytest.raises(InvalidSettings, match=r"nobody issues them here.*name the issuer in `\[credentials\]`"), opened:
        pytest.fail("it opened")


class Mortal:
    """An adapter whose process is gone after its first call reached the server, as far as a test can do that to itself:
    the driver of the run stops where it is.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.driver: asyncio.Task[Any] | None = None

    def describe(self) -> Any:
        return self._inner.describe()

    async def call(self, capability: str, args: Any, context: Any) -> Any:
        reply = await self._inner.call(capability, args, context)
        if self.driver is not None:
            self.driver.cancel()
            await asyncio.Event().wait()
        return reply

    async def lookup(self, *_: Any) -> Any:
        raise AssertionError("an API is not looked up")


def _keyed(file: dict[str, Any]) -> None:
    file["operations"]["pay"]["idempotency_header"] = "Idempotency-Key"
    for one in file["definition"]["capabilities"]:
        if one["name"] == "pay":
            one["idempotency"] = {"strategy": "keyed"}


@pytest.mark.requirement("A-CREDENTIAL-OWN")
@pytest.mark.parametrize(("kind", "edit"), [("read", None), ("pay", _keyed), ("pay", None)])
def test_a_call_that_was_taken_over_gets_a_token_of_its_own_and_each_is_on_record(kind: str, edit: Any) -> None:
    """The process is gone after the dispatch. Its token is gone with it, and what is sent then has another one."""
    name, args = {"read": READ, "pay": PAY}[kind]
    with place(wrap=Mortal, edit=edit) as here:
        gate = here.gate()
        if kind == "pay":
            assert isinstance(gate.call(name, args, call_id="1"), Waiting)
        view = gate.view()
        mortal = here.app.deployment.ports.adapters("acme")["shop"]

        async def die(app: Any, opened: Any) -> None:
            answering = Person("omar").answer(app, view) if kind == "pay" else opened.call(name, args, call_id="1")
            mortal.driver = asyncio.ensure_future(answering)
            await asyncio.wait({mortal.driver})
            mortal.driver = None

        here.app.call(die, here.app, gate)
        answer = here.gate().call(name, args, call_id="1")
        tokens, credentials = [token for token, _ in here.api.seen], here.exchanged(gate.run_id)
        assert len({one["credential"]["reference"] for one in credentials}) == len(credentials)
        if kind == "pay" and edit is None:
            # It has no key: nobody knows whether it happened, and nobody sends it again.
            assert isinstance(answer, Waiting), answer
            assert len(tokens) == len(credentials) == 1
            return
        assert isinstance(answer, Done), answer
        assert tokens == here.server.issued
        assert len(credentials) == len(set(tokens)) == 2
        assert here.gate().finish("approved")
        assert here.app.call(replay, here.app.deployment, "acme", gate.run_id).compared


def _workspace(folder: Path) -> Path:
    make_keys(folder / "keys")
    (folder / "contextos.toml").write_text('witness = "off"\n', "utf-8")
    return folder


def _decompressed(raw: bytes) -> Iterator[bytes]:
    """What is in a file as it is, and in each part of it that a deflate stream can begin with."""
    yield raw
    for head in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b"):
        at = raw.find(head)
        while at >= 0:
            with suppress(zlib.error):
                yield zlib.decompressobj(47).decompress(raw[at:], 1 << 20)
            at = raw.find(head, at + 1)


@pytest.mark.requirement("A-CREDENTIAL-RECORD")
def test_no_token_is_in_the_database_the_log_a_replay_or_an_export(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    folder = _workspace(tmp_path / "w")

    def echo(asked: Asked) -> Answer | None:
        if asked.path.endswith("echo"):
            return 400, json.dumps({"error": asked.headers["Authorization"]}).encode(), JSON
        return None

    with authorization_server() as server, shop() as api:
        api.instead = echo
        adapter = adapter_of(file_of(api.url))
        settings = replace(Settings.read(folder), egress={"acme": tuple(egress_of(api.url)["acme"])})
        opened = contextos.open(
            settings, directory=MemoryDirectory(people()), adapters=[adapter], credentials=port_of(server), dev=True
        )
        with opened as app:
            trusts(server, app)
            by = Person(TEST_OPERATOR).actor()
            app.install(pack_of(adapter), by=by)
            gate = app.gate(session="s1", user="ana", token="tok_ana", agent="agt_shop")
            assert isinstance(gate.call(*READ, call_id="1"), Done)
            assert not isinstance(gate.call("shop.read", {"id": "echo"}, call_id="2"), Waiting)
            assert isinstance(gate.call(*PAY, call_id="3"), Waiting)
            app.call(Person("omar").answer, app, gate.view())
            assert isinstance(gate.call(*PAY, call_id="3"), Done)
            record = gate.finish("approved").record
            assert app.call(replay, app.deployment, "acme", gate.run_id).compared
            exported = app.call(export_runs, app.deployment, "acme", [gate.run_id], by=by)
            live = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        closed = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert any(name.endswith("-wal") for name in live)
    secrets = [SECRET, *server.issued]
    secrets += [form[name] for form in server.forms for name in ("subject_token", "actor_token")]
    needles = [part.encode() for secret in secrets for part in {secret, secret.split(".")[-1]}]
    assert len(needles) > 12
    files = {**live, **{f"closed {name}": raw for name, raw in closed.items()}}
    files |= {
        "export": exported,
        "record": json.dumps(record).encode() if isinstance(record, dict) else repr(record).encode(),
        "log": caplog.text.encode(),
    }
    for name, raw in files.items():
        for content in _decompressed(raw):
            assert not any(needle in content for needle in needles), name
    assert any(b"credential.exchanged" in raw for raw in files.values()), "the search can find"


@contextmanager
def behind_a_proxy(url: str, heard: list[str], echo: bool = False) -> Iterator[str]:
    """An MCP server that asks for a token, and says it again in each order if `echo`."""

    def forward(asked: Asked) -> Answer:
        token = asked.headers.get("Authorization", "")
        heard.append(token)
        if not token.startswith("Bearer token-"):
            return 401, b"{}", JSON
        passed = {name: asked.headers[name] for name in ("Accept", "Content-Type", "Mcp-Session-Id", "Mcp-Method")}
        rest = {name: value for name, value in asked.headers.items() if name.lower().startswith("mcp-")}
        sent = {name: value for name, value in {**passed, **rest}.items() if value is not None}
        answer = httpx2.post(url, content=asked.body, headers=sent)
        body = answer.content.replace(b"ord_881", token.encode()) if echo else answer.content
        kept = {name: value for name, value in answer.headers.items() if name in ("content-type", "mcp-session-id")}
        return answer.status_code, body, kept

    with serving(forward) as place:
        yield f"{place}/mcp"


def test_a_session_with_an_mcp_server_belongs_to_the_call_for_which_its_token_was_issued(tmp_path: Path) -> None:
    heard: list[str] = []
    with (
        mcp_connection("shop_server.py", "http", tmp_path) as connection,
        behind_a_proxy(connection["url"], heard, echo=True) as url,
    ):
        file = asyncio.run(drafted(connection, tmp_path, reads=["lookup"], egress=[destination(url).endpoint]))
        file["connection"] = {"kind": "mcp", "url": url, "internal": True, "audience": AUDIENCE}
        file["definition"]["external"] = True
        for one in file["definition"]["capabilities"]:
            one["required_scopes"] = ["orders:read"]
        with opened(file, tmp_path) as adapter:
            assert {one.auth.mode for one in adapter.describe().capabilities} == {"exchange"}
            with pytest.raises(Unavailable):
                asyncio.run(adapter.call("lookup", {"order_id": "ord_881"}, call_context()))
            assert heard == []

            async def called(token: str) -> Any:
                context = replace(call_context(), access_token=token)
                return await adapter.call("lookup", {"order_id": "ord_881"}, context)

            async def both() -> Any:
                return await asyncio.gather(called("token-of-ana-0001"), called("token-of-bob-0002"))

            replies = asyncio.run(both())
            spoken = repr(replies)
            assert "[credential]" in spoken
            assert "token-of" not in spoken
            counted = {token: heard.count(token) for token in set(heard)}
            assert set(counted) == {"Bearer token-of-ana-0001", "Bearer token-of-bob-0002"}
            assert len(set(counted.values())) == 1, "each made the whole way of its own"


def test_a_file_that_says_two_things_of_its_credentials_is_refused(tmp_path: Path) -> None:
    for change in ({"token_env": "T"}, {"url": "", "command": ["server"], "internal": False}):
        with pytest.raises(InvalidInput, match="audience"):
            McpConnection.model_validate(
                {"kind": "mcp", "url": "http://127.0.0.1:9/mcp", "internal": True, "audience": AUDIENCE, **change}
            ).check()
    for edit in (
        lambda file: file["connection"]["credentials"]["user"].update(env="SHOP_TOKEN"),
        lambda file: file["connection"]["credentials"]["user"].update(place="basic"),
        lambda file: file["definition"]["capabilities"][0].update(required_scopes=[]),
        lambda file: file["definition"]["capabilities"][0].update(required_scopes=["orders:read admin"]),
        lambda file: file["definition"]["capabilities"][0].update(auth={"mode": "none"}),
        lambda file: file["definition"]["capabilities"][0].update(auth={"mode": "exchange", "audience": "other"}),
        lambda file: (
            file["connection"]["credentials"].update(other={"place": "bearer", "audience": "other"})
            or file["operations"]["read"]["credentials"].append("other")
        ),
    ):
        file = file_of("http://127.0.0.1:9")
        edit(file)
        with pytest.raises((InvalidInput, InvalidSettings)):
            adapter_of(file)
    adapter_of(file_of("http://127.0.0.1:9"))


def test_an_a2a_agent_gets_the_token_of_each_call_and_its_answers_do_not_hold_it() -> None:
    with hostile_agent() as agent:
        file = asyncio.run(drafted_agent(agent_at(agent.url), "say"))
        file["connection"]["audience"] = AUDIENCE
        for one in file["definition"]["capabilities"]:
            one["required_scopes"] = ["tickets:read"]
        adapter = agent_adapter(file)
        assert adapter.describe().capabilities[0].auth.audience == AUDIENCE
        agent.seen.clear()
        with pytest.raises(Unavailable):
            asyncio.run(adapter.call("say", {"text": "hello"}, call_context()))
        assert agent.seen == []
        for token in ("token-of-ana-0001", "token-of-bob-0002"):
            agent.seen.clear()
            context = replace(call_context(), access_token=token)
            reply = asyncio.run(adapter.call("say", {"text": f"it is {token}"}, context))
            assert reply.output == {"texts": ["it is [credential]"], "omitted": 0}
            assert {one["authorization"] for one in agent.seen} == {f"Bearer {token}"}
        file["connection"]["token_env"] = "LAB_TOKEN"
        with pytest.raises(InvalidInput, match="audience"):
            agent_adapter(file)
