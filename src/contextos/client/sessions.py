"""The gate of a session over HTTP: the server governs the agent's calls, and they have the answers of `App.gate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from contextos.client.sending import Sender, fitting_document, named
from contextos.contracts.envelopes.tool import ToolError
from contextos.contracts.envelopes.verdicts import SessionOutcome
from contextos.contracts.ports.gates import CallAnswer, Done, Reason, Refused, Waiting, checked_call, refused_call
from contextos.errors import InvalidInput, UnfitAnswer
from contextos.service.views import MAX_HELD_S, CallDocument, RequestOutcome, RunDocument, SessionDocument, ToolDocument


@dataclass(frozen=True, slots=True)
class ClientGate:
    """One open session, through which an agent calls tools. `tools` are the ids of the tools that it can call.

    The frameworks of `contextos.frameworks` take it in the place of the gate of `App.gate`.
    """

    session: str
    run_id: str
    tools: tuple[str, ...]
    _descriptions: Mapping[str, ToolDocument] = field(repr=False)
    _sender: Sender = field(repr=False)

    @classmethod
    def of_document(cls, document: SessionDocument, sender: Sender) -> ClientGate:
        """Return the gate of a session that the server opened."""
        return cls(document.session, document.run_id, tuple(document.tools), document.described, sender)

    def described_tools(self) -> Mapping[str, ToolDocument]:
        """Return the descriptions of the tools that a model reads, by tool id."""
        return self._descriptions

    async def call(self, name: str, args: Mapping[str, Any] | str, *, call_id: str, wait_s: int = 0) -> CallAnswer:
        """Ask for a call of the tool `name`. `call_id` is the agent's id of the call: one id is one call.

        The server holds a waiting call for up to `wait_s` seconds, cut to 0 to 30, and then answers `Waiting`.

        Raises:
            InvalidInput: the arguments or the call id are refused, or the id was used for another call
                (`ConflictingRequest`). The call is on record as refused, without its arguments and its id.
            Unavailable: no answer came; make the same call again.
        """
        try:
            tool, checked_args = checked_call(name, args, call_id)
        except InvalidInput as fault:
            record = refused_call(name, fault)
            answer = await self.call(record["tool"], record["args"], call_id=f"refused_{uuid4().hex}", wait_s=wait_s)
            if isinstance(answer, Waiting):
                return replace(answer, call_id=call_id)
            raise
        hold_s = min(max(wait_s, 0), MAX_HELD_S)
        document = await self._sender.document(
            CallDocument,
            "POST",
            f"/sessions/{named(self.session)}/calls",
            body={"call_id": call_id, "tool": tool, "args": checked_args},
            headers={"Prefer": f"wait={hold_s}"} if hold_s else None,
            repeats=True,
            held_s=hold_s,
        )
        return answer_of(document)

    async def finish(self, outcome: SessionOutcome, reason: str = "") -> RequestOutcome:
        """End the session with the agent's outcome, and return its run with the record.

        Raises:
            InvalidInput: the outcome is not a `SessionOutcome`, the session waits for an answer about a call, or it
                was finished with another outcome (`ConflictingRequest`).
            Unavailable: no answer came; finish it again.
        """
        body = {"outcome": outcome, "reason": reason}
        path = f"/sessions/{named(self.session)}/finish"
        return await self._sender.document(RequestOutcome, "POST", path, body=body, repeats=True)

    async def view(self) -> RunDocument:
        """Return the run of the session."""
        return await self._sender.document(RunDocument, "GET", f"/runs/{named(self.run_id)}")


def answer_of(found: CallDocument) -> CallAnswer:
    """Return the answer of a gate from its document. Raises `UnfitAnswer` for a failed call without an error."""
    if found.status == "waiting":
        return Waiting(found.call_id, found.waits_for or "engine", found.about or found.call_id, found.question or {})
    if found.status == "refused":
        reasons = [
            Reason(reason.code, reason.detail, reason.remedy, tuple(reason.facts), tuple(reason.because))
            for reason in found.reasons
        ]
        return Refused(found.call_id, tuple(reasons), found.ended)
    if found.status == "failed" and found.error is None:
        raise UnfitAnswer("the server says that the call failed, and not how; make the same call again")
    error = None if found.error is None else fitting_document(ToolError, found.error)
    return Done(found.call_id, found.output, error, found.replayed, found.withheld, tuple(found.artifacts))
