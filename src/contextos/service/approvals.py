"""`app.approvals`: the questions that wait for people, what exactly an answer signs, and the answer itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.statements.question_text import signed_text
from contextos.contracts.statements.questions import CONTENT, approval_statement, shown_text
from contextos.deployment.acts.checks import refuse_answer
from contextos.deployment.deployment import Deployment
from contextos.deployment.operator import OpenQuestion, answer_approval, open_question
from contextos.deployment.preview import void_question
from contextos.deployment.queries.positions import cursor_of, line_at
from contextos.deployment.queries.run_index import MAX_RUNS_READ, waiting_runs
from contextos.deployment.queries.run_names import run_named
from contextos.deployment.signing import SignAnswer
from contextos.errors import ApprovalRefused, Conflict, Integrity, NotFound, SignatureInvalid
from contextos.service.deadlines import Due, KeptDeadlines
from contextos.service.pages import Page, UnverifiedRun, check_limit
from contextos.trust.approvals.assertion import APPROVAL_TYP, login_assertion, sign_approval
from contextos.trust.approvals.gate_approvals import VoidQuestion
from contextos.trust.approvals.passkeys import passkey_assertion, request_options
from contextos.trust.identity.jws import signing_input, unverified_payload
from contextos.trust.identity.jwt import token_key_id
from contextos.trust.recorded_time import recorded_now_us
from contextos.trust.seal import listed_key

Verdict = Literal["approved", "denied"]

_SIGNED_FIELDS = ("approver", "verdict", "reason")


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A name and a value of a question, escaped for display: an argument of the call."""

    name: str
    value: JsonValue


@dataclass(frozen=True, slots=True)
class ShownEvidence:
    """Evidence that the run froze for the call: its name, its subject, its value and where it is from, escaped."""

    name: str
    subject: str
    value: JsonValue
    ref: str


@dataclass(frozen=True, slots=True)
class ApprovalStatement:
    """What a person signs to answer a question: `payload` is the statement as canonical JSON, and `text` the same
    statement for people.

    Show `text` to the person. A client that holds their key signs `payload` as a compact JWS; one whose key is
    elsewhere has the bytes of `signing_input` signed.
    """

    payload: bytes
    text: str
    _statement: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def nonce(self) -> str:
        """Return the digest of `payload`. It is the `nonce` of the login of a person who answers with an OIDC token."""
        return content_address(dict(self._statement))

    def signing_input(self, kid: str) -> bytes:
        """Return the bytes to sign with the person's Ed25519 key `kid`. The token is these bytes, a dot, and the
        signature in Base64url without padding.
        """
        return signing_input(kid, APPROVAL_TYP, self._statement)

    def signed_with(self, private_key: bytes) -> str:
        """Return the token by a raw Ed25519 private key of 32 bytes, for a client that holds it.

        Raises:
            ValueError: `private_key` has another length.
        """
        return sign_approval(private_key, listed_key(private_key)["kid"], self._statement)


@dataclass(frozen=True, slots=True)
class Question:
    """A question that waits for a person with the role `required_role`, as the verified journal of its run proves it.

    `args`, `evidence`, `untrusted`, `secrets` and `requester` are what the person is shown. `untrusted` has the
    arguments whose value no trusted source has, and `secrets` those whose value is shown to nobody. Each is listed with
    the place where the value was found, or `planner` if it was found nowhere. `binding_digest` names exactly this call,
    these arguments, this evidence and this text. `deadline_us` is Unix time in microseconds. `void` says why an
    approval would no longer count (a value that the question is bound to changed), or is empty. For a page of
    questions, tools that leave the machine are not asked whether their values changed.
    """

    tenant_id: str
    run_id: str
    approval_id: str
    gate_id: str
    required_role: str
    deadline_us: int
    binding_digest: str
    capability_id: str
    mode: str
    args: tuple[ShownValue, ...]
    evidence: tuple[ShownEvidence, ...]
    requester: tuple[str, ...]
    untrusted: tuple[ShownValue, ...]
    secrets: tuple[ShownValue, ...]
    void: str
    _content: Mapping[str, Any] = field(repr=False, compare=False)
    _deployment: Deployment = field(repr=False, compare=False)
    _void: VoidQuestion | None = field(repr=False, compare=False)
    _open_question: OpenQuestion | None = field(repr=False, compare=False)

    @property
    def content(self) -> Mapping[str, Any]:
        """Return the question as it is signed: `approval_id`, `binding` and its digest, `args` and `evidence`. No
        string is escaped, so show people the `text` of a statement instead.
        """
        return {name: self._content[name] for name in CONTENT}

    def statement(self, approver_id: str, verdict: Verdict, reason: str = "") -> ApprovalStatement:
        """Return what `approver_id` signs to give this verdict. The statement is valid only for this question, person,
        verdict and reason.

        Raises:
            InvalidInput: the verdict is neither `approved` nor `denied`, or the reason is too long or contains unsafe
                text.
            ApprovalRefused: the question is void, and the verdict approves (`approval_void`).
        """
        refuse_answer(verdict, reason)
        if verdict == "approved" and self._void is not None:
            raise self._void.refusal(self.run_id)
        statement = approval_statement(self._content, approver_id, verdict, reason)
        text = signed_text(self._content, approver_id, verdict, reason)
        return ApprovalStatement(canonical(statement), text, statement)

    async def answer(self, token: str) -> None:
        """Record the answer in `token`, a compact JWS over the payload of `statement` by the person's key.

        The run is due at once; an engine drives it on. What was signed is compared with the question as the journal has
        it now.

        Raises:
            ApprovalRefused: the answer does not count; as `answer_approval`. A token for another question is refused
                with `other_binding`, and one that was used before with `already_answered`.
            Integrity: an entry, the question or its stored document was altered.
            Conflict: another process changed the run at the same moment and the question is still open; answer again.
        """
        payload = unverified_payload(token)
        if payload is None or not all(isinstance(payload.get(name), str) for name in _SIGNED_FIELDS):
            detail = "the token is not a compact JWS over an approval statement; have the person sign `statement()`"
            raise ApprovalRefused("assertion_invalid", detail)
        if payload.get("binding_digest") != self.binding_digest:
            detail = f"the token answers another question than that of `{self.run_id}`; have the person sign this one"
            raise ApprovalRefused("other_binding", detail)
        await self._record(payload, lambda _statement: {"kind": "jws", "token": token}, self._open_question)

    async def answer_with_login(self, token: str, statement: ApprovalStatement) -> None:
        """Record the answer in `statement`, proved by an OIDC token of a login for it: its nonce is `statement.nonce`.

        The settings name the issuer (`[approval_logins]`), and the directory the logins of each person. The token is
        not kept.

        Raises:
            ApprovalRefused: as `answer`; or the token is not of that issuer, is for another statement or of an older
                login, or is the login of somebody else (`assertion_invalid`).
            Unavailable: the issuer does not give its keys; nothing was recorded.
            Integrity, Conflict: as `answer`.
        """
        ports, signed_fields = self._deployment.ports, statement._statement
        logins = ports.approval_logins
        if logins is None:
            detail = "this deployment trusts no issuer of logins; answer with a key, or set `[approval_logins]`"
            raise ApprovalRefused("assertion_invalid", detail)
        try:
            jwks = await logins.jwks(token_key_id(token))
        except SignatureInvalid as error:
            raise ApprovalRefused("assertion_invalid", str(error)) from None
        now_us = await recorded_now_us(ports, self.tenant_id)
        trusted: dict[str, Any] = {"now_us": now_us, "max_auth_age_s": logins.max_auth_age_s}
        # The issuer can have taken seconds, in which the question can have been erased. So its run is read again.
        await self._record(signed_fields, partial(login_assertion, token, logins.issuer, jwks, **trusted), None)

    async def passkey_options(self, statement: ApprovalStatement, *, origin: str) -> dict[str, JsonValue]:
        """Return the options with which a page of `origin` asks a browser for the answer in `statement`
        (`navigator.credentials.get`, as JSON): the challenge is the digest of the statement.

        Raises:
            ApprovalRefused: the directory does not know the person, or has no passkey of theirs for this origin.
        """
        approver_id = statement._statement["approver"]
        approver = await self._deployment.ports.directory.approver(self.tenant_id, approver_id)
        if approver is None:
            raise ApprovalRefused("not_approver", f"`{approver_id}` is not known as an approver in this tenant")
        return request_options(approver, origin, statement._statement)

    async def answer_with_passkey(self, response: Mapping[str, Any], statement: ApprovalStatement) -> None:
        """Record the answer in `statement`, proved by a passkey: `response` is what the browser returned for
        `passkey_options` (`credential.toJSON()`).

        Raises:
            ApprovalRefused: as `answer`; or the assertion is not from a passkey of the person, is for another
                statement, origin or relying party, was made without verifying the person, or its counter went backwards
                (`assertion_invalid`).
            Integrity, Conflict: as `answer`.
        """
        signed_fields, assertion = statement._statement, passkey_assertion(response)
        await self._record(signed_fields, lambda _statement: assertion, self._open_question)

    async def _record(self, signed_fields: Mapping[str, Any], vouch: SignAnswer, question: OpenQuestion | None) -> None:
        """Record the answer in a statement, proved by the assertion that `vouch` returns for it.

        `question` is the question as it was read. If it is None, the question is read now.
        """
        answer = partial(
            answer_approval,
            self._deployment,
            self.tenant_id,
            self.run_id,
            approver_id=signed_fields["approver"],
            verdict=signed_fields["verdict"],
            reason=signed_fields["reason"],
            binding_digest=signed_fields["binding_digest"],
            vouch=vouch,
        )
        if question is not None:
            # If the run went on since it was read, the answer is judged on what is there now.
            with suppress(Conflict):
                return await answer(asked=question)
        await answer()


class ApprovalQuestions:
    """The questions to people of a deployment, for an application that shows them and takes their answers."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._deadlines: dict[str, KeptDeadlines] = {}

    async def urgent(
        self, tenant_id: str, *, roles: Collection[str], limit: int = 50, skip: int = 0
    ) -> tuple[Page[Question], int]:
        """Return the open questions to one of `roles`, those that are due first before others, and how many there are.
        The page has `limit` of them behind the first `skip`; it has no cursor, because the order changes.

        Only the questions of the page are read and verified again. `unverified` are runs as `waiting` lists them, of
        those that were read now. The first 1,000 runs that wait are looked at.

        Raises:
            InvalidInput: the limit is not valid.
        """
        check_limit(limit)
        app, unverified = self._deployment, dict[str, UnverifiedRun]()

        async def read(run_id: str) -> OpenQuestion | None:
            # Reading and verifying one run does not yield, so other tasks get a turn between two runs.
            await app.ports.pause(0)
            try:
                return await open_question(app, tenant_id, run_id)
            except (Integrity, NotFound) as fault:
                unverified[run_id] = UnverifiedRun(run_id, str(fault))
            except ApprovalRefused:
                # The run waits for something else, or its question was answered meanwhile.
                pass
            return None

        async def due(run_id: str) -> Due | None:
            asked = await read(run_id)
            if asked is None and run_id in unverified:
                # It is looked at again each time.
                return Due(0, "")
            return None if asked is None else Due(asked.content["deadline_us"], asked.content["required_role"])

        kept = self._deadlines.setdefault(tenant_id, KeptDeadlines())
        found = await kept.read(app.ports.stores.tenant(tenant_id), due, app.ports.clock.now_us())
        urgent = sorted((one.deadline_us, run) for run, one in found.items() if one.role in roles)
        questions = list[Question]()
        for _, run_id in urgent[skip : skip + limit]:
            if asked := await read(run_id):
                void = await void_question(app, tenant_id, asked.entries, outside=False)
                questions.append(self._question(tenant_id, run_id, asked, void))
        return Page(tuple(questions), None, tuple(unverified.values())), len(urgent)

    async def waiting(
        self,
        tenant_id: str,
        *,
        role: str | None = None,
        roles: Collection[str] | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[Question]:
        """Return a page of the open questions of a tenant, newest first. With `role`, only questions to that role; with
        `roles`, only questions to one of them.

        A run that was altered, or that only the index names, is listed in `unverified`. Nobody should answer its
        question.

        Raises:
            InvalidInput: the limit or the cursor is not valid.
            ChainBroken: an entry of the index that was read is missing, moved or changed.
        """
        check_limit(limit)
        store = self._deployment.ports.stores.tenant(tenant_id)
        start = await line_at(store, tenant_id, cursor)
        questions: list[Question] = []
        unverified: list[UnverifiedRun] = []
        runs_read, last_cursor = 0, ""
        async for entry in waiting_runs(store, tenant_id, start.seq if start else 0):
            if len(questions) == limit or runs_read == MAX_RUNS_READ:
                return Page(tuple(questions), last_cursor, tuple(unverified))
            runs_read, last_cursor = runs_read + 1, cursor_of(entry)
            # Reading and verifying one run does not yield, so other tasks get a turn between two runs.
            await self._deployment.ports.pause(0)
            try:
                question = await open_question(self._deployment, tenant_id, entry.key)
            except ApprovalRefused:
                # The run waits for something else, or its question was answered meanwhile.
                continue
            except (Integrity, NotFound) as fault:
                unverified.append(UnverifiedRun(entry.key, str(fault)))
                continue
            required_role = question.content["required_role"]
            if role in (None, required_role) and (roles is None or required_role in roles):
                void = await void_question(self._deployment, tenant_id, question.entries, outside=False)
                questions.append(self._question(tenant_id, entry.key, question, void))
        return Page(tuple(questions), None, tuple(unverified))

    async def get(
        self, tenant_id: str, name: str, *, roles: Collection[str] | None = None, answering: bool = False
    ) -> Question:
        """Return the question on which a run waits. `name` is the id of the run, or of its request.

        `answering`: the caller has an answer already. Then the run is not read again to record the answer, and `void`
        is empty, because the record of the answer checks whether the question is void.

        Raises:
            ApprovalRefused: the run waits for no approval (`not_waiting`), or its question was answered
                (`already_answered`) or has expired (`expired`).
            Integrity: an entry, the question or its stored document was altered; nobody should answer it.
            NotFound: no such run or request in this tenant; or `roles` are given, and the last question of the run,
                open or not, asks none of them.
        """
        run_id = await run_named(self._deployment.ports.stores.tenant(tenant_id), name)
        question = await open_question(self._deployment, tenant_id, run_id, roles)
        void = None if answering else await void_question(self._deployment, tenant_id, question.entries)
        return self._question(tenant_id, run_id, question, void, answering=answering)

    def _question(
        self, tenant_id: str, run_id: str, question: OpenQuestion, void: VoidQuestion | None, *, answering: bool = False
    ) -> Question:
        content = question.content
        display = shown_text(content["binding"], content["args"], content["evidence"])
        return Question(
            tenant_id=tenant_id,
            run_id=run_id,
            approval_id=content["approval_id"],
            gate_id=content["gate_id"],
            required_role=content["required_role"],
            deadline_us=content["deadline_us"],
            binding_digest=question.binding_digest,
            capability_id=display["capability"],
            mode=display["mode"],
            args=tuple(ShownValue(name, value) for name, value in display["args"].items()),
            evidence=tuple(
                ShownEvidence(item["name"], item["subject"], item["value"], item["ref"]) for item in display["evidence"]
            ),
            requester=tuple(display["requester"]),
            untrusted=tuple(ShownValue(name, place) for name, place in display.get("untrusted", {}).items()),
            secrets=tuple(ShownValue(name, place) for name, place in display.get("secrets", {}).items()),
            void=void.detail if void is not None else "",
            _content=content,
            _deployment=self._deployment,
            _void=void,
            _open_question=question if answering else None,
        )
