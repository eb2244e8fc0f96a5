"""Gives each call that an MCP client makes in one session an id, by which a repeated call is recognised.

MCP numbers messages, and the numbers begin again with each client. So the id of a call comes from the journal: a call
repeats an earlier call if it asks for the same tool with the same arguments, and the earlier call

- has no answer yet: it waits for a person, or its answer was never read;
- is a write that was done: a session does a write once;
- was denied by a person, who is not asked again;
- was the last call of the session when this process opened it, and no other call came since: its client may have ended
  before it read the answer.

Every other call is new. So a read reads again, and a refused call is judged again by the facts of that time.
Source: docs/adr/0041-an-mcp-client-is-governed-as-a-session.md.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.journal import Entry
from contextos.contracts.ports.gates import MAX_ARGS_BYTES, CallAnswer, Refused, Waiting
from contextos.deployment.gate.gate import ANSWERED, Gate, call_of, known_tools
from contextos.deployment.queries.rationales import pinned_artifacts
from contextos.errors import Conflict, InvalidInput, MalformedJson, Problem
from contextos.frameworks.offers import OfferedTool, ask, offers_of
from contextos.runtime.attempts.agent_session import ASKED
from contextos.runtime.redaction import cleanse_text

MAX_ID_RACES: Final = 8
SAID_NO: Final = "approval_denied"
RUN_PLACE: Final = "{run}"

_CALL_ID: Final = re.compile(r"mcp_([0-9]{1,9})")


@dataclass(slots=True)
class SessionCalls:
    """One open session for an MCP client. Calls are made one after the other; use it from one event loop.

    `offered` are the tools by the names that a client sees, and `definitions` their definitions by tool id. `link` is
    the page where a person finds the questions of the session, or empty.
    """

    gate: Gate
    offered: Mapping[str, OfferedTool]
    definitions: Mapping[str, CapabilityDefinition]
    pack: ContextPack
    link: str = ""
    _ids: dict[bytes, str] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)
    _last_content: bytes = b""
    _last_number: int = 0
    _is_current: bool = False
    _read_before: bool = False
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    async def of(cls, gate: Gate, link: str = "") -> SessionCalls:
        """Return the calls of an open session. The `link` is as `ServedSessions.link`.

        Raises:
            InvalidInput: as `offers_of`, or the artifacts that the session is pinned to cannot be found, because the
                beginning of its journal was erased.
        """
        definitions = known_tools(gate.deployment, gate.tenant_id)
        offered = offers_of(gate.tools, definitions)
        loaded = await pinned_artifacts(gate.deployment.catalog(gate.tenant_id), await _entries(gate))
        if loaded is None:
            detail = "the beginning of the session was erased"
            raise InvalidInput(Problem("/session", "erased", detail, "open a session of another name"))
        return cls(
            gate,
            offered,
            {tool_id: definitions[tool_id] for tool_id in gate.tools},
            loaded.pack,
            link.replace(RUN_PLACE, gate.run_id),
        )

    async def call(self, name: str, args: Mapping[str, Any]) -> CallAnswer:
        """Ask for a call of the tool `name`, as the client sees it. A faulty call is answered with a refusal.

        `Done.replayed` is also true for the recorded answer of an earlier call that this call repeats.

        Raises:
            Conflict: other processes took the next call id `MAX_ID_RACES` times; make the same call again.
            Unavailable: make the same call again.
        """
        async with self._lock:
            for _ in range(MAX_ID_RACES):
                if not self._is_current:
                    self._read_journal(await _entries(self.gate))
                content = self._call_content(name, args)
                if self._last_content not in (b"", content):
                    # The client went on, so it has read that answer.
                    self._ids.pop(self._last_content, None)
                self._last_content = b""
                call_id = self._ids.get(content, f"mcp_{self._last_number + 1}")
                self._is_current = False
                answer = await ask(self.gate, self.offered, name, args, call_id)
                self._is_current = True
                if isinstance(answer, Refused) and _has_code(answer, "conflicting_call"):
                    # Another process made a call of this id meanwhile.
                    self._is_current = False
                    continue
                return self._note_answer(content, name, call_id, answer)
        raise Conflict(self.gate.session, "make the same call again")

    async def again(self, call_id: str) -> CallAnswer:
        """Return the answer of an earlier call so far, by its id.

        Raises:
            InvalidInput: the session has no such call, or its arguments were erased.
            Unavailable: ask again.
        """
        async with self._lock:
            body = read_body(_find_call(await _entries(self.gate), call_id))
            if body is None:
                raise unknown_call(call_id)
            answer = await self.gate.call(body["tool"], body["args"], call_id=call_id)
            content = canonical(call_of(body))
            if not isinstance(answer, Waiting) and self._ids.get(content) == call_id:
                # The client reads this answer here, so a later `call` of a read is a new call.
                self._note_answer(content, body["tool"], call_id, answer)
            return answer

    async def times_of(self, call_id: str) -> tuple[int, int]:
        """Return the time at which a call was asked for and that of the last entry of the session (Unix microseconds).

        Raises:
            InvalidInput: the session has no such call.
            Unavailable: ask again.
        """
        entries = await _entries(self.gate)
        return _find_call(entries, call_id).at_us, entries[-1].at_us

    def _call_content(self, name: str, args: Mapping[str, Any]) -> bytes:
        """Return the canonical JSON that equal calls share: tool and arguments as the journal has them. Empty if the
        call is not recorded.
        """
        tool_id = self.offered[name].tool_id if name in self.offered else name
        try:
            # The gate refuses arguments that are too large, so no time is spent on them here.
            if len(canonical(dict(args))) > MAX_ARGS_BYTES:
                return b""
            secrets = self.definitions[tool_id].secrets if tool_id in self.definitions else ()
            marked = self.gate.deployment.secret_values.marked(self.gate.run_id, tool_id, args, secrets)
            return canonical(cleanse_text(self.pack, {"tool": tool_id, "args": marked}))
        except (MalformedJson, RecursionError, UnicodeEncodeError):
            # The gate refuses it, and records none of its arguments.
            return b""

    def _read_journal(self, entries: Sequence[Entry]) -> None:
        """Read from the journal the last number, and the ids of the calls that a later call can repeat."""
        self._ids, self._answered, self._last_number = {}, set(), 0
        calls = [entry for entry in entries if entry.kind == ASKED]
        newest = calls[-1] if calls and not self._read_before else None
        self._read_before = True
        answers = {entry.key: read_body(entry) for entry in entries if entry.kind == ANSWERED}
        for entry in calls:
            match = _CALL_ID.fullmatch(entry.key)
            self._last_number = max(self._last_number, int(match[1]) if match else 0)
            body, answer = read_body(entry), answers.get(entry.key)
            if body is None:
                continue
            is_final = entry.key not in answers or (answer and self._is_final(body["tool"], answer))
            if is_final or entry is newest:
                content = canonical(call_of(body))
                self._ids[content] = entry.key
                self._last_content = b"" if is_final else content
                self._answered.update({entry.key} & answers.keys())

    def _is_final(self, tool_id: str, answer: Mapping[str, Any]) -> bool:
        """Return whether every repeat of a call gets this recorded answer: a done write, or a denied approval."""
        is_done_write = answer["status"] == "done" and self._is_write(tool_id)
        return is_done_write or any(failure["code"] == SAID_NO for failure in answer["failures"])

    def _note_answer(self, content: bytes, name: str, call_id: str, answer: CallAnswer) -> CallAnswer:
        """Remember the answer of a call. Return the answer, marked as replayed if it was recorded before."""
        if isinstance(answer, Waiting):
            if answer.about == call_id:
                self._note_call(content, call_id)
            return answer
        if isinstance(answer, Refused) and answer.ended:
            # A session that is over records no call, so this id may be free.
            self._is_current = False
            return answer
        was_answered = call_id in self._answered
        self._note_call(content, call_id)
        self._answered.add(call_id)
        if isinstance(answer, Refused):
            if not _has_code(answer, SAID_NO):
                del self._ids[content]
            return answer
        if answer.error is not None or not self._is_write(self.offered[name].tool_id if name in self.offered else name):
            del self._ids[content]
        return replace(answer, replayed=True) if was_answered else answer

    def _note_call(self, content: bytes, call_id: str) -> None:
        self._ids[content] = call_id
        match = _CALL_ID.fullmatch(call_id)
        self._last_number = max(self._last_number, int(match[1]) if match else 0)

    def _is_write(self, tool_id: str) -> bool:
        return tool_id in self.definitions and self.definitions[tool_id].kind == "write"


async def _entries(gate: Gate) -> Sequence[Entry]:
    return await gate.deployment.ports.stores.tenant(gate.tenant_id).read(gate.run_id)


def _find_call(entries: Sequence[Entry], call_id: str) -> Entry:
    call = next((entry for entry in entries if (entry.kind, entry.key) == (ASKED, call_id)), None)
    if call is None:
        raise unknown_call(call_id)
    return call


def unknown_call(call_id: str) -> InvalidInput:
    """Return the error for the id of a call that the session does not have."""
    detail = f"the session has no call `{call_id[:80]}`"
    return InvalidInput(Problem("/taskId", "unknown_call", detail, "use the `taskId` that a call of it returned"))


def _has_code(answer: Refused, code: str) -> bool:
    return any(reason.code == code for reason in answer.reasons)
