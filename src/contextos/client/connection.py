"""`connect` opens a client of a server, for programs with or without an event loop. `ApiClient` has its methods."""

from __future__ import annotations

import ssl
from asyncio import sleep, timeout
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from time import time
from types import TracebackType
from typing import Any, Final, Literal
from uuid import uuid4

from contextos.adapters.loop_thread import BothContexts
from contextos.client.event_stream import EventReader, StreamedEvent, check_event_id
from contextos.client.sending import FIRST_PAUSE_S, MAX_PAUSE_S, BearerToken, ModelT, Sender, checked_url, named
from contextos.client.sessions import ClientGate
from contextos.client.signatures import ACT_TOKEN, APPROVAL_TOKEN, Sign, act_path, signed_token, stated_answer
from contextos.contracts.envelopes.record import DecisionOutput, DecisionRecord
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.statements.acts import SETTLEMENT, acts_disagreement
from contextos.contracts.statements.settlements import SETTLEMENT_TYP
from contextos.errors import ApprovalRefused, InvalidInput, LostReply, Problem, Unavailable, UnfitAnswer
from contextos.service.views import (
    EVENT_STREAM,
    ActDocument,
    AnswerReceipt,
    AnyDocument,
    LedgerDocument,
    QuestionDocument,
    QuestionPage,
    RequestOutcome,
    RunDocument,
    RunListDocument,
    SessionDocument,
    StatementDocument,
    TimelineDocument,
    TraceDocument,
)

API_TIMEOUT_S: Final = 120
API_PATIENCE_S: Final = 20
SILENCE_S: Final = 60
"""A stream on which nothing arrives for this many seconds is opened again; the server writes a line every 15 s."""

MAX_LIMIT_S: Final = 86_400
VerdictName = Literal["approved", "denied"]
LedgerName = Literal["context", "effect", "decision"]


def connect(
    url: str,
    token: BearerToken,
    *,
    timeout_s: float = API_TIMEOUT_S,
    patience_s: float = API_PATIENCE_S,
    tls: ssl.SSLContext | None = None,
    tenant: str | None = None,
    person: str | None = None,
) -> ApiConnection:
    """Return a context that is a client of the API at `url`: `async with connect(…) as client`, or
    `with connect(…) as client` without an event loop.

    `token` is a bearer token, or a function that returns the current one. `timeout_s` limits one answer, in seconds.
    `patience_s` limits the sum of the waits between the tries of one request; with 0 each request is sent once. `tls`
    replaces the authorities that `httpx` trusts. `tenant` and `person` are the tenant and the person of the token:
    nothing is signed in another tenant or for another person. Where they are left out, the server names them. Nothing
    is sent before a method is called.

    Raises:
        InvalidInput: `url` is neither an `https://` URL nor an `http://` URL of this machine, or a time is not a number
            of seconds from 0.001 (`timeout_s`) or 0 (`patience_s`) to one day.
    """
    checked_url(url)
    _check_seconds("/timeout_s", timeout_s, least=0.001)
    _check_seconds("/patience_s", patience_s, least=0)
    return ApiConnection(
        lambda: Sender(url, token, timeout_s=timeout_s, patience_s=patience_s, tls=tls), tenant, person
    )


def _check_seconds(pointer: str, value: float, *, least: float) -> None:
    if not isinstance(value, int | float) or not least <= value <= MAX_LIMIT_S:
        detail = f"it is not a number of seconds from {least:g} to {MAX_LIMIT_S}"
        raise InvalidInput(Problem(pointer, "out_of_range", detail, "correct it"))


class ApiConnection(BothContexts["ApiClient"]):
    """A client between entering and leaving. It can be entered again after it was left."""

    def __init__(self, open_sender: Callable[[], Sender], tenant: str | None, person: str | None) -> None:
        self._open_sender, self._signer = open_sender, (tenant, person)
        self._sender: Sender | None = None

    async def __aenter__(self) -> ApiClient:
        if self._sender is not None:
            raise InvalidInput(Problem("", "open", "this client is open already", "call `connect` again"))
        self._sender = self._open_sender()
        return ApiClient(self._sender, *self._signer)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sender, self._sender = self._sender, None
        assert sender is not None, "it was entered"
        await sender.aclose()


class ApiClient:
    """The API of one server for one caller. A method raises the error of `contextos.errors` that the server raised.

    A run is named by its id or by the id of the request that made it. Times are Unix time in microseconds.
    """

    def __init__(self, sender: Sender, tenant: str | None = None, person: str | None = None) -> None:
        self._sender, self._tenant, self._person = sender, tenant, person

    async def invoke(self, request: InvokeRequest | Mapping[str, Any]) -> RequestOutcome:
        """Send a request, and return the state of its run: ended, waiting, or (`long_running`) stored.

        `request_id` names the request: the same request again is the same run. Without it the request gets a name
        that only the repeats of this call share.
        """
        body = request.to_json() if isinstance(request, InvokeRequest) else dict(request)
        headers = {} if "request_id" in body else {"Idempotency-Key": f'"req_{uuid4().hex}"'}
        return await self._sender.document(RequestOutcome, "POST", "/runs", body=body, headers=headers, repeats=True)

    async def runs(
        self,
        *,
        state: str | None = None,
        subject: str | None = None,
        decision: str | None = None,
        approver: str | None = None,
        rule: str | None = None,
        status: str | None = None,
        began_from: int | None = None,
        began_before: int | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> RunListDocument:
        """Return a page of the runs that the caller may see and that fit everything that is stated, newest first."""
        filters = {"state": state, "subject": subject, "decision": decision, "approver": approver, "rule": rule}
        period = {"began_from": began_from, "began_before": began_before}
        query = _page_query(limit, cursor, **filters, status=status, **period)
        return await self._sender.document(RunListDocument, "GET", "/runs", query=query)

    async def run(self, name: str) -> RunDocument:
        """Return one run with its current record."""
        return await self._sender.document(RunDocument, "GET", f"/runs/{named(name)}")

    async def record(self, name: str) -> DecisionRecord:
        """Return the current decision record of a run. Raises `RequestRefused` (`not_ended`) if there is none yet."""
        return await self._sender.document(DecisionRecord, "GET", f"/runs/{named(name)}/record")

    async def decision(self, name: str) -> DecisionOutput:
        """Return the short form of the decision of a run. Raises `RequestRefused` (`not_ended`) if the run goes on."""
        return await self._sender.document(DecisionOutput, "GET", f"/runs/{named(name)}/decision")

    async def timeline(self, name: str) -> TimelineDocument:
        """Return the story of a run, with text from outside escaped for display."""
        return await self._sender.document(TimelineDocument, "GET", f"/runs/{named(name)}/timeline")

    async def ledger(self, name: str, ledger: LedgerName) -> LedgerDocument:
        """Return a ledger of a run: what it knew (`context`), what it did (`effect`), or what it decided."""
        return await self._sender.document(LedgerDocument, "GET", f"/runs/{named(name)}/ledgers/{named(ledger)}")

    async def spans(self, name: str) -> TraceDocument:
        """Return the trace of a run: its spans and events. Both are empty until the run has ended."""
        return await self._sender.document(TraceDocument, "GET", f"/runs/{named(name)}/spans")

    async def stream(self, name: str, *, after: str = "") -> AsyncGenerator[StreamedEvent]:
        """Yield the events of a run in order, past and new ones, until the run has ended.

        `after` is the id of the last event that was read. A lost connection is opened again after the last event, so
        there is no gap and no duplicate.

        Raises:
            InvalidInput: `after` is not the id of an event of the run (`unknown_event`).
            Unavailable: the server did not answer for `patience_s` seconds.
        """
        check_event_id(after)
        patience, empty = self._sender.patience(), 0

        def renew_patience() -> None:
            nonlocal patience
            patience = self._sender.patience()

        while True:
            try:
                async with aclosing(self._events_after(named(name), after, renew_patience)) as events:
                    async for event in events:
                        if event is None:
                            return
                        after, empty = event.id, 0
                        yield event
                # A stream that ends at once, again and again, is opened less and less often.
                await sleep(min(FIRST_PAUSE_S * 2**empty, MAX_PAUSE_S))
                empty = min(empty + 1, 16)
            except (Unavailable, LostReply) as error:
                await patience.wait(error)

    async def _events_after(
        self, name: str, after: str, on_answer: Callable[[], None]
    ) -> AsyncGenerator[StreamedEvent | None]:
        """Yield the events of one connection, and None at its end if nothing follows in the run. Call `on_answer` after
        each event and each keep-alive line, because a run can wait longer than a connection lasts.
        """
        headers = {"Last-Event-ID": after} if after else {}
        async with self._sender.stream(f"/runs/{name}/events", EVENT_STREAM, headers, SILENCE_S) as answer:
            if answer.status_code == 204:
                yield None
                return
            reader = EventReader()
            async for chunk in answer.aiter_raw():
                for event in reader.feed(chunk):
                    on_answer()
                    yield event
                if chunk.endswith(b"\n\n"):
                    on_answer()

    async def wait(self, name: str, *, timeout_s: float | None = None) -> RunDocument:
        """Return a run once it has ended, or after `timeout_s` seconds in the state that it has then."""
        try:
            async with timeout(timeout_s), aclosing(self.stream(name)) as events:
                async for _ in events:
                    pass
        except TimeoutError:
            pass
        return await self.run(name)

    async def cancel(self, name: str, reason: str = "", *, sign: Sign, kid: str | None = None) -> RequestOutcome:
        """Request that a run stops. The request is signed as in `answer`. An effect that was sent is not interrupted.

        Raises:
            ApprovalRefused: the run has ended, or the signature does not count.
            RequestRefused: the caller may not stop it (`not_allowed`).
            Conflict: the run went on meanwhile; call this again.
            UnfitAnswer: the server answered with another run, or gave another statement to sign.
        """
        run = await self.run(name)
        run_id = named(run.run_id)
        if name not in (run_id, run.request_id):
            raise UnfitAnswer("the server answered with another run than was named; nothing was signed")
        held = {"run": run_id, "request_id": run.request_id}
        return await self._do_act(RequestOutcome, "runs/{run}/cancel", {"reason": reason}, held, sign, kid)

    async def reask(
        self, question: QuestionDocument, reason: str = "", *, sign: Sign, kid: str | None = None
    ) -> RequestOutcome:
        """Have a void question asked again; the request is signed as in `answer`. The run pins the artifacts that are
        in force now, judges the call anew and asks about it anew.

        Raises:
            ApprovalRefused: the question is valid (`not_void`) or closed, or the signature does not count.
            RequestRefused: the caller may not do so (`not_allowed`).
            Conflict: the run went on meanwhile; read it.
        """
        question.content()
        held = {"run": question.run_id, "binding_digest": question.binding_digest}
        return await self._do_act(RequestOutcome, "runs/{run}/reask", {"reason": reason}, held, sign, kid)

    async def settle(
        self,
        call: Mapping[str, Any],
        *,
        happened: bool,
        evidence_ref: str,
        output: Mapping[str, Any] | None = None,
        mutations: Sequence[str] = (),
        sign: Sign,
        kid: str | None = None,
    ) -> RequestOutcome:
        """Settle an effect whose outcome nobody knows, signed as in `answer`. `call` is the call that the operator was
        shown: the `envelope` of the last `tool.dispatching` in the effect ledger of the run.

        Raises:
            ApprovalRefused: the run waits for no settlement, the signer may not settle it, or the signature does not
                count.
            UnfitAnswer: the server gave another call or another outcome to sign.
        """
        body: dict[str, Any] = {"happened": happened, "evidence_ref": evidence_ref}
        body |= {"output": dict(output or {}), "mutations": list(mutations)} if happened else {}
        held = {"run": call["run_id"], "call": call}
        return await self._do_act(RequestOutcome, SETTLEMENT, body, held, sign, kid)

    async def act(
        self,
        route: str,
        body: Mapping[str, Any],
        *,
        sign: Sign,
        kid: str | None = None,
        held: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Do a governed act, such as `act("pins", {"refs": …, "intents": …, "expected": 3}, sign=key.sign)`.

        `route` is the address of the act in the API, with its parameter in braces; `held` has the value of
        the parameter. `held` also has what the signer was shown and does not send: the `proposal` under review, the
        `facts` to end and the `snapshot` of their list, or the `active` pins and policies. The client makes each
        statement from `body` and `held`; the server has to return the same statements, each once. A token counts for 15
        minutes.

        Raises:
            InvalidInput: there is no such route for an act.
            UnfitAnswer: the server gave something else to sign.
            LostReply: nobody knows whether the act was done.
        """
        return (await self._do_act(AnyDocument, route, body, held or {}, sign, kid)).root

    async def _do_act(
        self,
        contract: type[ModelT],
        route: str,
        body: Mapping[str, Any],
        held: Mapping[str, Any],
        sign: Sign,
        kid: str | None,
    ) -> ModelT:
        """Do an act: check that its statements follow from `body` and `held`, sign each, and send them."""
        path = act_path(route, held)
        draft = await self._sender.document(ActDocument, "POST", f"{path}/statement", body=body, repeats=True)
        acts = draft.statements
        statements, values = [act.statement for act in acts], {**held, **body}
        if fault := acts_disagreement(statements, route, values, self._tenant, self._person):
            raise UnfitAnswer(f"what the server gives to sign is not what was asked for: {fault}; nothing was signed")
        typ = SETTLEMENT_TYP if route == SETTLEMENT else ACT_TOKEN
        tokens = [await signed_token(act.signing_inputs, act.statement, typ, sign, kid, int(time())) for act in acts]
        return await self._sender.document(contract, "POST", path, body={**body, "tokens": tokens})

    async def read(self, path: str, **query: str | int) -> dict[str, Any]:
        """Return a document of the API, such as `read("/pins")`, to show it to the signer of an act."""
        return (await self._sender.document(AnyDocument, "GET", path, query=query)).root

    async def questions(self, *, role: str | None = None, limit: int = 50, cursor: str = "") -> QuestionPage:
        """Return a page of the open questions to the roles of the caller, newest first."""
        query = _page_query(limit, cursor, role=role)
        return await self._sender.document(QuestionPage, "GET", "/approvals", query=query)

    async def question(self, name: str) -> QuestionDocument:
        """Return the question on which a run waits. Raises `ApprovalRefused` if it does not wait any more."""
        return await self._sender.document(QuestionDocument, "GET", f"/approvals/{named(name)}")

    async def statement(self, question: QuestionDocument, verdict: VerdictName, reason: str = "") -> StatementDocument:
        """Return the statement that the caller signs to answer a question; show them its `text`. Nothing is recorded.

        The statement was compared with the question. Raises as `answer`, except for errors of the signature.
        """
        return (await self._statement_pair(question, verdict, reason))[0]

    async def _statement_pair(
        self, question: QuestionDocument, verdict: str, reason: str
    ) -> tuple[StatementDocument, dict[str, Any]]:
        """Return the statement from the server, and the equal statement that was made here from the question."""
        if self._tenant is not None and question.binding.tenant_id != self._tenant:
            raise UnfitAnswer("the question of the server is of another tenant; nothing was signed")
        body = {"verdict": verdict, "reason": reason}
        question.content()
        if verdict == "approved" and question.void:
            raise ApprovalRefused("approval_void", "the question is void; have it asked again; nothing was signed")
        path = f"/approvals/{named(question.run_id)}/statement"
        document = await self._sender.document(StatementDocument, "POST", path, body=body, repeats=True)
        return document, stated_answer(question, document, verdict, reason, self._person)

    async def answer(
        self, question: QuestionDocument, verdict: VerdictName, reason: str = "", *, sign: Sign, kid: str | None = None
    ) -> AnswerReceipt:
        """Answer a question that was read, with the caller's own signature.

        `sign` takes the bytes to sign and returns an Ed25519 signature of 64 bytes; the client never gets the key.
        `kid` names the key where the directory lists several keys of the caller. The signed statement is made from
        `question` alone: this answer to this question. If the server gives another statement, nothing is signed.

        Raises:
            ApprovalRefused: the answer does not count; `reason` says why, such as `already_answered` or `expired`.
            LostReply: nobody knows whether the answer was recorded; read the run.
            UnfitAnswer: a part of the question does not follow from its content, or the server gave something else to
                sign.
        """
        document, statement = await self._statement_pair(question, verdict, reason)
        token = await signed_token(document.statements[0].signing_inputs, statement, APPROVAL_TOKEN, sign, kid)
        path, body = f"/approvals/{named(question.run_id)}/answer", {"verdict": verdict, "reason": reason}
        return await self._sender.document(AnswerReceipt, "POST", path, body={**body, "tokens": [token]})

    async def gate(
        self,
        *,
        session: str,
        user: str | None = None,
        agent: str | None = None,
        delegation: str | None = None,
        intent: str | None = None,
        pack: str | None = None,
        message: str = "",
        context: Mapping[str, Any] | None = None,
        tools: Sequence[str] | None = None,
    ) -> ClientGate:
        """Open the session of an agent that chooses its own calls, or find it by its name.

        A person leaves `user` out. `delegation` is the reference of the delegation by which the agent acts.
        """
        named_parts = {"user": user, "agent": agent, "delegation": delegation, "intent": intent, "pack": pack}
        body = {"session": session, "message": message, "context": dict(context or {})}
        body |= {name: value for name, value in named_parts.items() if value is not None}
        body |= {} if tools is None else {"tools": list(tools)}
        document = await self._sender.document(SessionDocument, "POST", "/sessions", body=body, repeats=True)
        return ClientGate.of_document(document, self._sender)


def _page_query(limit: int, cursor: str, **parameters: str | int | None) -> dict[str, str | int]:
    """Return the query of a page, without the parameters that are None and without an empty cursor."""
    query: dict[str, str | int] = {name: value for name, value in parameters.items() if value is not None}
    return {**query, "limit": limit, **({"cursor": cursor} if cursor else {})}
