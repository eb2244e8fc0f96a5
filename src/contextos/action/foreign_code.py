"""Call foreign code behind the `Adapter` port, and turn its results and exceptions into those of the port (ADR 0008).

An adapter can be a class of the user's own. It can raise anything, hang, or answer something that is not a reply. A
fault in a write is a `LostReply`, because nobody knows whether the write happened; a fault in a read is `Unavailable`.
A read that raises one of `DEFECTS` has failed for good: it is not repeated, and does not count against its circuit.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Final, NoReturn, Self, cast

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.secret_shapes import without_secrets
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext, ToolError
from contextos.contracts.model import MAX_TEXT_CHARS, final_fields
from contextos.contracts.ports.concurrency import Concurrency, ForeignExit
from contextos.contracts.ports.outside import Adapter
from contextos.errors import ContextOSError, LostReply, Overloaded, Unavailable

GRACE_MS: Final = 1_000
"""The milliseconds that an adapter gets beyond its own time limit, so that its own reply to a timeout comes first."""

DEFECTS: Final = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError),
    *(RecursionError, TypeError, ValueError),
)
"""The exceptions that show a mistake in the adapter's code, and not that an external system does not answer."""
_FROM_OUTSIDE: Final = (json.JSONDecodeError, UnicodeError, OSError)
"""Exceptions with an outside cause, such as a proxy's error page or a bad certificate. They never count as defects."""

ReportFault = Callable[[BaseException, Mapping[str, str]], None]
"""Reports an exception that foreign code raised, with the ids of the tenant, run and tool call, and the capability."""


def ignore_fault(_fault: BaseException, _fields: Mapping[str, str]) -> None:
    """Ignore a fault: the `ReportFault` of a deployment without a log."""


class ForeignFaults(AbstractContextManager[Any]):
    """A context manager that turns any exception of foreign code into one of the port. So does `FunctionAdapter`.

    `Unavailable`, `Overloaded` and `LostReply` pass. From a look-up `Unavailable` does not pass, because it would claim
    that the call did not happen. Subclasses of the three belong to the runtime and do not pass. Texts that look like
    secrets are redacted from an exception that passes.
    """

    def __init__(
        self,
        adapter_id: str,
        capability: str,
        context: CallContext,
        report: ReportFault,
        *,
        is_read: bool,
        passing: Any,
        tells_defects: bool = False,
    ) -> None:
        """`tells_defects`: one of `DEFECTS` ends the block without an exception; the caller has to look in `defect`."""
        self._adapter_id, self._capability, self._context = adapter_id, capability, context
        self._report_fault, self._is_read = report, is_read
        self._passing: frozenset[type[ContextOSError]] = passing
        self._tells_defects = tells_defects
        self.defect: AdapterReply | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        # Checks `kind` and not the object: a foreign object can claim another class, or raise when it is inspected.
        if kind is None or not issubclass(kind, Exception | SystemExit | KeyboardInterrupt):
            return None
        fault = cast(BaseException, error)
        if kind in self._passing and self._has_short_texts(fault):
            # The text of the exception goes into records, the list of dead letters, and answers to callers.
            fault.args = tuple(without_secrets(text.encode(errors="replace").decode()) for text in fault.args)
            return None
        if issubclass(kind, Unavailable) and Unavailable in self._passing:
            raise Unavailable(self._adapter_id, f"`{self._capability}`: it raised `{kind.__name__}`") from fault
        if issubclass(kind, ForeignExit) and fault.__cause__ is not None:
            fault = fault.__cause__
        self.report(fault)
        if self._tells_defects and issubclass(kind, DEFECTS) and not issubclass(kind, _FROM_OUTSIDE):
            detail = f"`{self._adapter_id}.{self._capability}` has a defect: it raised `{kind.__name__}`"
            remedy = "go on without it, and tell its maintainer: the log has the place"
            self.defect = AdapterReply(error=ToolError(code="tool_defect", message=detail, remedy=remedy))
            return True
        self.uncertain(f"it raised `{type(fault).__name__}`", fault)

    def report(self, fault: BaseException) -> None:
        """Report an exception of foreign code."""
        # A handler or filter of the embedding application is foreign code too: it must not change the outcome.
        with suppress(Exception):
            self._report_fault(fault, self._fields())

    def uncertain(self, why: str, cause: BaseException | None = None) -> NoReturn:
        """Raise `Unavailable` for a read, which changes nothing, and `LostReply` for a write or a look-up."""
        if self._is_read:
            raise Unavailable(self._adapter_id, f"`{self._capability}`: {why}") from cause
        detail = f"`{self._adapter_id}.{self._capability}` may have happened: {why}; look before it is sent again"
        raise LostReply(detail) from cause

    def _has_short_texts(self, fault: BaseException) -> bool:
        return all(isinstance(text, str) and len(text) <= MAX_TEXT_CHARS // 2 for text in fault.args)

    def _fields(self) -> dict[str, str]:
        return {
            "tenant": self._context.tenant_id,
            "run": self._context.run_id,
            "tool_call": self._context.tool_call_id,
            "capability": f"{self._adapter_id}.{self._capability}",
        }


CALL_PASSES: Final = frozenset({Unavailable, Overloaded, LostReply})
LOOKUP_PASSES: Final = frozenset({Overloaded, LostReply})


@final_fields
class ForeignCode:
    """The path of one run's calls to foreign code: limited in time, with every fault turned into one of the port's."""

    concurrency: Concurrency
    report: ReportFault

    async def call(
        self, adapter_id: str, capability: str, context: CallContext, call: Callable[[], Awaitable[Any]]
    ) -> AdapterReply:
        """Call an adapter. Raises `Unavailable` or `Overloaded` (nothing happened), or `LostReply` (nobody knows)."""
        # Every write has a key, so a call without one is a read.
        is_read = context.idempotency_key is None
        faults = ForeignFaults(
            adapter_id, capability, context, self.report, is_read=is_read, passing=CALL_PASSES, tells_defects=is_read
        )
        reply: AdapterReply = await self._reply(call, context, faults)
        return reply

    async def lookup(
        self, adapter_id: str, capability: str, context: CallContext, call: Callable[[], Awaitable[Any]]
    ) -> AdapterReply | None:
        """Look up a call. Raises `LostReply` (its outcome is still unknown) or `Overloaded` (no adapter was asked)."""
        faults = ForeignFaults(adapter_id, capability, context, self.report, is_read=False, passing=LOOKUP_PASSES)
        reply: AdapterReply | None = await self._reply(call, context, faults, or_none=True)
        return reply

    async def _reply(
        self, call: Callable[[], Awaitable[Any]], context: CallContext, faults: ForeignFaults, *, or_none: bool = False
    ) -> Any:
        answer: Any = None
        with faults:
            answer = await self.concurrency.within(context.timeout_ms + GRACE_MS, call)
            if isinstance(answer, AdapterReply):
                return checked_reply(answer)
        if faults.defect is not None:
            return faults.defect
        if or_none and answer is None:
            return None
        faults.uncertain(f"it answered a `{type(answer).__name__}`, not a reply")


def checked_reply(reply: AdapterReply) -> AdapterReply:
    """Return a validated copy of a reply, which is used instead of the reply. A reply can be made without validation,
    be changed afterwards, or be of a class that answers differently each time. Raises whatever foreign values raise.
    """
    fields = dict(vars(reply))
    for name in ("error", "withheld"):
        fields[name] = None if fields[name] is None else dict(vars(fields[name]))
    fields["artifacts"] = [dict(vars(artifact)) for artifact in fields["artifacts"]]
    checked = AdapterReply.model_validate(fields)
    if checked.mutations or checked.error or checked.withheld or checked.artifacts:
        parts = [part and part.to_json() for part in (checked.error, checked.withheld)]
        artifacts = [[artifact.name, artifact.media_type] for artifact in checked.artifacts]
        canonical({"mutations": checked.mutations, "said": parts, "made": artifacts})
    return checked


def describe_adapter(adapter_id: str, adapter: Adapter) -> AdapterDefinition:
    """Return the definition of an adapter. Raises `Unavailable` if the adapter does not return a definition."""
    definition: Any = None
    with _DescriptionFaults(adapter_id):
        definition = adapter.describe()
    if not isinstance(definition, AdapterDefinition):
        raise Unavailable(adapter_id, f"it describes itself as a `{type(definition).__name__}`, not a definition")
    return definition


class _DescriptionFaults(AbstractContextManager[None]):
    """A context manager that turns any exception of `describe` into `Unavailable`. No cancellation can arrive in it."""

    def __init__(self, adapter_id: str) -> None:
        self._adapter_id = adapter_id

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is None:
            return None
        raise Unavailable(self._adapter_id, f"it does not describe itself: it raised `{kind.__name__}`") from error
