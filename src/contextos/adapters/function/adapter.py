"""`FunctionAdapter`: the `Adapter` port over plain Python functions: trusted code that is not the runtime's.

A function is called with the arguments and the `CallContext`. It returns an `AdapterReply` or a plain dict (its output;
the declared cost is charged). It refuses with `BusinessError`, reports that nothing happened with `Unavailable`, and
that something may have happened with `LostReply`. Any other exception, a return value that is not a reply and a timeout
are faults in foreign code. A fault in a write is a `LostReply`, because nobody knows whether it happened. A fault in a
read is `Unavailable`, because a read changes nothing; an exception that only wrong code raises is the error
`tool_defect`, and the read is not tried again. Each exception is logged by class and frames, also after the timeout.

Sync functions run in a bounded pool of threads. A tenant has at most half of the threads that the others leave free,
and at least one; at most `queue_limit` of its calls wait. A thread cannot be stopped: after `timeout_ms` it goes on,
and the call can still happen. Async functions run on the event loop and use no thread. After `timeout_ms` they are
cancelled; code in them that blocks stops the whole process and is not limited. A call of either kind is not made if its
time is over when it gets its turn. Functions named in `inline` run on the caller's thread without a timeout; they are
for reads that take microseconds.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, cast

from contextos.action.foreign_code import CALL_PASSES, LOOKUP_PASSES, ForeignFaults, checked_reply
from contextos.adapters.function.threads import Threads
from contextos.contracts.encoding.secret_shapes import shortened
from contextos.contracts.envelopes.tool import (
    AdapterDefinition,
    AdapterReply,
    CallContext,
    CapabilityDefinition,
    ToolError,
)
from contextos.contracts.model import MAX_NAME_CHARS, MAX_TEXT_CHARS
from contextos.errors import ContextOSError, InvalidSettings, LostReply, Overloaded, Problem, Unavailable
from contextos.telemetry.logs import error_fields

MAX_THREADS: Final = 32
CALL_QUEUE_LIMIT: Final = 256

Function = Callable[..., Any]

USES: Final = "__contextos_uses__"
"""The attribute of a function that lists the foreign functions and classes that it calls: their code is bound too."""

_LOG: Final = logging.getLogger("contextos.adapters")


class BusinessError(Exception):
    """Raised by a function to refuse a call for a business reason. `code` is a stable name of the reason."""

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        self.code, self.retryable = code, retryable
        super().__init__(message)


class Running(BusinessError):
    """Raised by a write with a `lookup` whose effect goes on after it returns, and by the lookup until the effect ends.
    The other system calls the effect `operation`. It is looked up after `retry_after_s` seconds or later.
    """

    def __init__(self, operation: str, *, retry_after_s: int = 5) -> None:
        self.operation, self.retry_after_s = operation, retry_after_s
        super().__init__("running", f"it runs as `{operation}`", retryable=True)


class FunctionAdapter:
    """An adapter made of plain Python functions. `functions` and `lookups` map capability (tool) names to them.

    Raises:
        InvalidSettings: a function is not declared, a declared capability has no function, a `lookup` strategy has no
            lookup, or a write or an async function would run inline.
    """

    def __init__(
        self,
        definition: AdapterDefinition,
        functions: Mapping[str, Function],
        lookups: Mapping[str, Function] | None = None,
        *,
        inline: Collection[str] = (),
        threads: int = 16,
        queue_limit: int = CALL_QUEUE_LIMIT,
    ) -> None:
        self._declared = {capability.name: capability for capability in definition.capabilities}
        self._definition, self._functions, self._lookups = definition, dict(functions), dict(lookups or {})
        self._inline = frozenset(inline)
        _refuse_misfit(definition.adapter_id, self._declared, self._functions, self._lookups, self._inline)
        self._threads = Threads(min(threads, MAX_THREADS), queue_limit=queue_limit, name=definition.adapter_id)

    def describe(self) -> AdapterDefinition:
        """Return the adapter's definition: the same object every time, so callers can compare by identity."""
        return self._definition

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        """Call the function of `capability`.

        Raises:
            Unavailable: nothing happened; `Overloaded` if this process had no room for the call.
            LostReply: it may have happened.
        """
        declaration = self._declared.get(capability)
        if declaration is None:
            raise Unavailable(self._definition.adapter_id, f"it has no capability `{capability}`")
        faults = _CallFaults(self._definition.adapter_id, declaration, context, passing=CALL_PASSES)
        value: Any = None
        with faults:
            value = await self._run(capability, self._functions[capability], (args, context), context, faults)
        return _make_reply(value, faults)

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        """Return what the call with this key did, or None if there was none.

        Raises:
            LostReply: the lookup failed, so it is still not known what the call did.
            Overloaded: this process had no room to ask.
        """
        function, declaration = self._lookups.get(capability), self._declared.get(capability)
        if function is None or declaration is None:
            raise LostReply(f"`{self._definition.adapter_id}.{capability}` cannot be looked up; settle it by hand")
        faults = _CallFaults(self._definition.adapter_id, declaration, context, passing=LOOKUP_PASSES)
        value: Any = None
        with faults:
            value = await self._run(capability, function, (idempotency_key, context), context, faults)
        return None if value is None and faults.refusal is None else _make_reply(value, faults)

    def close(self) -> None:
        """Release the threads. Functions that still run are not waited for."""
        self._threads.close()

    async def _run(
        self, capability: str, function: Function, arguments: tuple[Any, ...], context: CallContext, faults: _CallFaults
    ) -> Any:
        if capability in self._inline:
            return function(*arguments)
        timeout_s = context.timeout_ms / 1000

        def call_in_time() -> Any:
            if context.is_late():
                raise Overloaded(self._definition.adapter_id, "its time was over before it had its turn")
            return function(*arguments)

        if inspect.iscoroutinefunction(function):
            try:
                async with asyncio.timeout(timeout_s):
                    return await call_in_time()
            except TimeoutError:
                faults.uncertain(f"it did not answer in {context.timeout_ms} ms")

        keeper = _ErrorKeeper(faults)

        def guarded_call() -> Any:
            with keeper:
                return call_in_time()

        future = self._threads.submit(context.tenant_id, guarded_call)
        if future is None:
            detail = "too many calls of this tenant wait for its threads, or it is closed"
            raise Overloaded(self._definition.adapter_id, detail)
        waiter = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({waiter}, timeout=timeout_s)
        if done and not waiter.cancelled():
            if keeper.error is not None:
                raise keeper.error
            return waiter.result()
        if future.cancel():
            raise Overloaded(self._definition.adapter_id, "all its threads are taken, or it is closed")
        keeper.abandon()
        faults.uncertain(f"it did not answer in {context.timeout_ms} ms")


class _ErrorKeeper(AbstractContextManager[None]):
    """Keeps the exception that a function raised in its thread, so that no future holds it.

    After a timeout nobody awaits the future, and asyncio would print its exception with the message. An exception that
    the function raises after the timeout is logged here, without its message.
    """

    def __init__(self, faults: _CallFaults) -> None:
        self.error: BaseException | None = None
        self._faults, self._lock, self._is_abandoned = faults, threading.Lock(), False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        with self._lock:
            self.error = error
            is_late = self._is_abandoned
        if error is not None and is_late:
            self._faults.report(error)
        return True

    def abandon(self) -> None:
        """Note that nobody waits for the function any more. Its exception, also a later one, is then logged."""
        with self._lock:
            self._is_abandoned, error = True, self.error
        if error is not None:
            self._faults.report(error)


class _CallFaults(ForeignFaults):
    """The faults of a function. A `BusinessError` is not a fault but an answer, and is kept in `refusal`."""

    def __init__(
        self,
        adapter_id: str,
        capability: CapabilityDefinition,
        context: CallContext,
        *,
        passing: frozenset[type[ContextOSError]],
    ) -> None:
        self.capability = capability
        self.refusal: BusinessError | None = None
        is_read = capability.kind == "read" and passing == CALL_PASSES
        super().__init__(
            adapter_id, capability.name, context, log_fault, is_read=is_read, passing=passing, tells_defects=is_read
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is not None and issubclass(kind, BusinessError):
            self.refusal = cast(BusinessError, error)
            return True
        return super().__exit__(kind, error, trace)


def log_fault(fault: BaseException, fields: Mapping[str, str]) -> None:
    """Log an exception of foreign code by its class and its frames (`ReportFault`)."""
    _LOG.error("foreign code raised", extra=dict(fields) | error_fields(fault))


def _make_reply(value: Any, faults: _CallFaults) -> AdapterReply:
    """Return the value that a function returned as a reply. Another type of value is a fault like any other."""
    reply: AdapterReply | None = None
    strategy = faults.capability.idempotency.strategy
    if isinstance(faults.refusal, Running) and faults.capability.kind == "write" and strategy != "lookup":
        faults.uncertain("it says that it runs on, and has no lookup")
    with faults:
        reply = _as_reply(value if faults.refusal is None else faults.refusal, faults.capability.cost_cents)
    if faults.defect is not None:
        return faults.defect
    if reply is None:
        faults.uncertain(f"it answered a `{type(value).__name__}`, not an object")
    return reply


def _as_reply(value: Any, cost_cents: float) -> AdapterReply | None:
    """Return a value as a reply, None for a value of another type. Raises whatever the foreign value raises. The Tool
    Gateway refuses an output that is not JSON.
    """
    if isinstance(value, Running):
        return AdapterReply(operation=value.operation, retry_after_s=value.retry_after_s, cost_cents=cost_cents)
    if isinstance(value, BusinessError):
        code, message = _short_text(value.code, MAX_NAME_CHARS), _short_text(value, MAX_TEXT_CHARS)
        refusal = ToolError(code=code, message=message, retryable=bool(value.retryable))
        return AdapterReply(error=refusal, cost_cents=cost_cents)
    if isinstance(value, dict):
        return AdapterReply(output=value, cost_cents=cost_cents)
    return checked_reply(value) if isinstance(value, AdapterReply) else None


def _short_text(value: Any, max_chars: int) -> str:
    """Return a value as text that can be stored: valid UTF-8, at most `max_chars` characters."""
    return shortened(str(value), max_chars)


def _refuse_misfit(
    adapter_id: str,
    declarations: Mapping[str, CapabilityDefinition],
    functions: Mapping[str, Function],
    lookups: Mapping[str, Function],
    inline: frozenset[str],
) -> None:
    problems = [
        (name, "is declared and has no function", "give it one") for name in declarations.keys() - functions.keys()
    ]
    names = functions.keys() | lookups.keys() | inline
    problems += [(name, "is not declared", "declare the capability") for name in names - declarations.keys()]
    for name, capability in declarations.items():
        if capability.idempotency.strategy == "lookup" and name not in lookups:
            problems.append((name, "declares the strategy `lookup` and has no lookup", "give it one"))
        if name in inline and (capability.kind == "write" or inspect.iscoroutinefunction(functions.get(name))):
            problems.append((name, "is not a synchronous read, so it cannot run inline", "leave it out of `inline`"))
    if problems:
        raise InvalidSettings(
            *(
                Problem(f"/adapters/{adapter_id}/{name}", "misfit", f"`{name}` {fault}", remedy)
                for name, fault, remedy in sorted(problems)
            )
        )
