"""The HTTP API in this process, over a real workspace of the example: no socket, and an event loop in a thread."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import httpx
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI

import contextos
from contextos.cli.demo.templates import copy_template
from contextos.cli.demo.workspace import example_operator, make_workspace, seed_graph
from contextos.deployment.acts.act import Actor
from contextos.server.assembly import http_api
from contextos.server.serving import listen
from contextos.workspace import App, open_unchecked
from contextos.workspace.logins.development_tokens import development_token
from contextos.workspace.settings import Settings

TENANT = "tenant_acme_prod"
OTHER_TENANT = "tenant_other"
REQUESTER = "usr_771"
LEAD = "user_finance_lead_77"
OPERATOR = "user_operator_5"
HOST = "127.0.0.1:8765"
BASE = f"http://{HOST}"

ResultT = TypeVar("ResultT")


@dataclass
class HttpFace:
    """The API, its deployment, and what sends requests as a person of a tenant."""

    path: Path
    app: App
    api: FastAPI
    call: Callable[[Awaitable[Any]], Any]
    begin: Callable[[Coroutine[Any, Any, Any]], Future[Any]]
    client: httpx.AsyncClient
    _tokens: dict[tuple[str, str], str] = field(default_factory=dict)
    _cookies: dict[tuple[str, str], str] = field(default_factory=dict)
    _made: int = 0

    def token(self, person: str, tenant: str = TENANT) -> str:
        if (tenant, person) not in self._tokens:
            ports = self.app.deployment.ports
            made = development_token(
                self.app.settings, ports, tenant, user=person, agent=None, delegation=None, ttl_s=3_600
            )
            self._tokens[tenant, person], _ = self.call(made)
        return self._tokens[tenant, person]

    def send(
        self,
        method: str,
        path: str,
        *,
        by: str = REQUESTER,
        tenant: str = TENANT,
        token: str | None = None,
        **more: Any,
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or self.token(by, tenant)}", **more.pop("headers", {})}
        answer: httpx.Response = self.call(self.client.request(method, path, headers=headers, **more))
        return answer

    def anonymous(self, method: str, path: str, **more: Any) -> httpx.Response:
        answer: httpx.Response = self.call(self.client.request(method, path, **more))
        return answer

    def page(self, path: str, by: str = REQUESTER, method: str = "GET", **more: Any) -> httpx.Response:
        """A page of the console, as the browser of a person who logged in reads it."""
        headers = {"Host": HOST, "Cookie": self.cookie(by, more.pop("tenant", TENANT)), **more.pop("headers", {})}
        return self.anonymous(method, f"/console{path}", headers=headers, **more)

    def cookie(self, person: str = REQUESTER, tenant: str = TENANT) -> str:
        """The cookie of a session of the console, the same for each page of this person."""
        if (tenant, person) not in self._cookies:
            self._cookies[tenant, person] = self.new_cookie(person, tenant)
        return self._cookies[tenant, person]

    def new_cookie(self, person: str = REQUESTER, tenant: str = TENANT) -> str:
        """The cookie of a new session of the console. A person has eight at once, and the oldest ends first."""
        sent = {"token": self.token(person, tenant), "to": "/console"}
        headers = {"Host": HOST, "Origin": f"http://{HOST}"}
        answer = self.anonymous("POST", "/console/login", headers=headers, data=sent)
        self.client.cookies.clear()
        assert answer.status_code == 303, answer.text
        return answer.headers["set-cookie"].partition(";")[0]

    def request(self, name: str = "small", **changes: Any) -> dict[str, Any]:
        """A request of the example under an id of its own."""
        self._made += 1
        body = json.loads((self.path / "requests" / f"{name}.json").read_text("utf-8"))
        return {**body, "request_id": f"req_http_{self._made}", **changes}

    def waiting_run(self) -> str:
        """A run that waits for a finance lead."""
        body = self.request("next")
        # Another amount is another effect, so that each run asks.
        body["input"]["context"]["refund_amount"] = 5_000 + self._made
        sent = self.send("POST", "/v1/runs", json=body)
        assert (sent.status_code, sent.json()["waits_for"]) == (201, "approval"), sent.text
        return str(sent.json()["run_id"])

    def signed_answer(self, run: str, verdict: str = "approved", *, by: str = LEAD) -> dict[str, Any]:
        """The answer of a lead to the question of a run, signed with their key."""
        body = {"verdict": verdict, "reason": ""}
        [one] = self.send("POST", f"/v1/approvals/{run}/statement", by=by, json=body).json()["statements"]
        [signed] = one["signing_inputs"].values()
        return {**body, "tokens": [self.signature(signed, by)]}

    def signature(self, signed: str, by: str) -> str:
        key = bytes.fromhex((self.path / "keys" / f"{by}.key").read_text("utf-8"))
        signature = Ed25519PrivateKey.from_private_bytes(key).sign(signed.encode())
        return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"

    def ended(self, run: str) -> dict[str, Any]:
        """The run once it has ended; an engine drives it."""

        async def wait() -> None:
            at = await self.app.runs.position(TENANT)
            if (await self.app.runs.get(TENANT, run)).ended:
                return
            async for event in self.app.runs.events(TENANT, after=at, wait=True):
                if (event.run_id, event.event) == (run, "run.ended"):
                    return

        self.call(asyncio.wait_for(wait(), 60))
        found: dict[str, Any] = self.send("GET", f"/v1/runs/{run}").json()
        return found


async def begin_refunds(path: Path, store: str = "") -> None:
    """Make a workspace of refunds with two tenants; the people of both have the same ids, and only one has packs."""
    made = make_workspace(path)
    if store:
        toml = path / "contextos.toml"
        toml.write_text(f'store = "{store}"\n' + toml.read_text("utf-8"), "utf-8")
    listed = json.loads((path / "directory.json").read_text("utf-8"))
    (path / "directory.json").write_text(json.dumps({**listed, OTHER_TENANT: listed[TENANT]}), "utf-8")
    app = await open_unchecked(Settings.read(path))
    await app.initialise(TENANT, by=example_operator(path))
    await seed_graph(app, made)
    app.close()


async def begin_deploys(path: Path) -> None:
    """Make a workspace in which an agent chooses its own calls: it rolls services back."""
    copy_template("deploy_rollback", path)
    otto = Actor.with_key("otto", bytes.fromhex((path / "keys" / "otto.key").read_text("utf-8")))
    app = await open_unchecked(Settings.read(path))
    await app.initialise("acme", by=otto)
    app.close()


@contextmanager
def http_face(folder: Path, begin: Callable[[Path], Awaitable[None]] = begin_refunds) -> Iterator[HttpFace]:
    """Serve the new workspace that `begin` makes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(work: Awaitable[ResultT]) -> ResultT:
        async def awaited() -> ResultT:
            return await work

        coroutine: Coroutine[Any, Any, ResultT] = awaited()
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(120)

    def start(work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, loop)

    with patch.dict(os.environ, {"XDG_STATE_HOME": str(folder / "state")}):
        path = folder / "w"
        call(begin(path))
        opening = contextos.open(path)
        app = call(opening.__aenter__())
        tokens = app.bearer_tokens(bound_to="127.0.0.1")

        async def assemble() -> tuple[FastAPI, httpx.AsyncClient]:
            api = http_api(app, tokens)
            # As behind a real server, a defect is an answer and not an exception of the client.
            transport = httpx.ASGITransport(api, raise_app_exceptions=False)
            return api, httpx.AsyncClient(transport=transport, base_url=BASE)

        api, client = call(assemble())
        try:
            yield HttpFace(path, app, api, call, start, client)
        finally:
            call(client.aclose())
            call(opening.__aexit__(None, None, None))
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


@contextmanager
def served_url(face: HttpFace) -> Iterator[str]:
    """The address of a real server of the API, on the loop of the deployment."""
    bound = listen("127.0.0.1:0")
    server = uvicorn.Server(uvicorn.Config(face.api, lifespan="off", log_level="critical", access_log=False))

    async def serve() -> None:
        await server.serve(sockets=[bound])

    done = face.begin(serve())
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        done.result(30)
