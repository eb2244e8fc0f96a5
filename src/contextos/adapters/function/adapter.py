"""`FunctionAdapter`: the `Adapter` port over plain Python functions. They are trusted code that somebody else wrote.

A function is called with the arguments and the `CallContext` and answers an `AdapterReply` or a plain dict (its output;
the declared cost is charged). It says no by `BusinessError`, "nothing happened" by `Unavailable` and "it may have" by
`LostReply`. Whatever else it raises is a fault in foreign code, and one rule covers that, an answer that is no reply
and a timeout alike: of a write nobody knows whether it happened (`LostReply`), a read changes nothing (`Unavailable`).

Sync functions run in a bounded pool of threads, of which a tenant has at most half of what the others leave, and one
at least, and for which at most `queue_limit` of its calls wait; async ones run on the loop; both within `timeout_ms`.
A call whose time is over when it gets its thread is not made. A thread cannot be stopped: after a timeout it goes on,
and the call may still happen. Functions named in `inline` run on the caller's thread without a hand-over and without a
timeout, for reads of microseconds.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Final, NoReturn

from contextos.adapters.function.threads import Threads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import (
    AdapterDefinition,
    AdapterReply,
    CallContext,
    CapabilityDefinition,
    ToolError,
)
from contextos.contracts.model import MAX_NAME_CHARS, MAX_TEXT_CHARS
from contextos.errors import ContextOSError, InvalidSettings, LostReply, Overloaded, Problem, Unavailable

MAX_THREADS: Final = 32
CALL_QUEUE_LIMIT: Final = 256

Function = Callable[..., Any]


class BusinessError(Exception):
    """What a function raises to say no: an answer with a stable `code`, not a fault."""

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        self.code, self.retryable = code, retryable
        super().__init__(message)


class FunctionAdapter:
    """Functions by capability name, and lookups by capability name.

    Refuses functions that are not declared, declared capabilities without a function, a `lookup` strategy without a
    lookup, and a write that would run inline.
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
        """The same object every time: who asks again may compare by identity."""
        return self._definition

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        """Call the function. Raises `Unavailable` or `LostReply`."""
        declared = self._declared.get(capability)
        if declared is None:
            raise Unavailable(self._definition.adapter_id, f"it has no capability `{capability}`")
        caught = _Caught(self._definition.adapter_id, declared)
        answer: Any = None
        with caught:
            answer = await self._run(capability, self._functions[capability], (args, context), context, caught)
        return _reply(answer, caught)

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        """Ask what the call with this key did. Raises `LostReply` where the answer is anything but certain."""
        function, declared = self._lookups.get(capability), self._declared.get(capability)
        if function is None or declared is None:
            raise LostReply(f"`{self._definition.adapter_id}.{capability}` cannot be looked up; settle it by hand")
        caught = _Caught(self._definition.adapter_id, declared, certain=False)
        answer: Any = None
        with caught:
            answer = await self._run(capability, function, (idempotency_key, context), context, caught)
        return None if answer is None and caught.refusal is None else _reply(answer, caught)

    def close(self) -> None:
        """Let go of the threads; those that still run are not waited for."""
        self._threads.close()

    async def _run(
        self, capability: str, function: Function, given: tuple[Any, ...], context: CallContext, caught: _Caught
    ) -> Any:
        if capability in self._inline:
            return function(*given)
        timeout_s = context.timeout_ms / 1000
        if inspect.iscoroutinefunction(function):
            try:
                async with asyncio.timeout(timeout_s):
                    return await function(*given)
            except TimeoutError:
                caught.uncertain(f"it did not answer in {context.timeout_ms} ms")

        def in_time() -> Any:
            if context.is_late():
                raise Overloaded(self._definition.adapter_id, "its time was over before it had a thread")
            return function(*given)

        running = self._threads.submit(context.tenant_id, in_time)
        if running is None:
            why = "too many calls of this tenant wait for its threads, or it is closed"
            raise Overloaded(self._definition.adapter_id, why)
        waiting = asyncio.wrap_future(running)
        done, _ = await asyncio.wait({waiting}, timeout=timeout_s)
        if done and not waiting.cancelled():
            return waiting.result()
        if running.cancel():
            raise Overloaded(self._definition.adapter_id, "all its threads are taken, or it is closed")
        caught.uncertain(f"it did not answer in {context.timeout_ms} ms")


class _Caught:
    """Turns what foreign code raised into what the port promises. The one place where any `Exception` is caught.

    An error of ours passes through, but for a lookup that is not `certain`: there only `LostReply` does, and that this
    process had no room.
    """

    def __init__(self, adapter_id: str, capability: CapabilityDefinition, *, certain: bool = True) -> None:
        self.capability, self._adapter_id = capability, adapter_id
        self.refusal: BusinessError | None = None
        self._certain = certain and capability.kind == "read"
        self._ours: tuple[type[ContextOSError], ...] = (Unavailable, LostReply) if certain else (LostReply, Overloaded)

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        if isinstance(error, BusinessError):
            self.refusal = error
            return True
        if isinstance(error, self._ours):
            return False
        self.uncertain(f"it raised `{type(error).__name__}`", error)

    def uncertain(self, why: str, cause: Exception | None = None) -> NoReturn:
        """A read changes nothing, so nothing happened; of a write nobody knows."""
        if self._certain:
            raise Unavailable(self._adapter_id, f"`{self.capability.name}`: {why}") from cause
        detail = f"`{self._adapter_id}.{self.capability.name}` may have happened: {why}; look before it is sent again"
        raise LostReply(detail) from cause


def _reply(answer: Any, caught: _Caught) -> AdapterReply:
    """What was answered, as a reply; what makes none is a fault like any other."""
    made: AdapterReply | None = None
    with caught:
        made = _made(answer if caught.refusal is None else caught.refusal, caught.capability.cost_cents)
    if made is None:
        caught.uncertain(f"it answered a `{type(answer).__name__}`, not an object")
    return made


def _made(answer: Any, cost_cents: float) -> AdapterReply | None:
    """Raises whatever foreign values raise. An output that is no JSON is the Tool Gateway's to judge."""
    if isinstance(answer, BusinessError):
        code, message = _text(answer.code, MAX_NAME_CHARS), _text(answer, MAX_TEXT_CHARS)
        told = ToolError(code=code, message=message, retryable=bool(answer.retryable))
        return AdapterReply(error=told, cost_cents=cost_cents)
    if isinstance(answer, dict):
        return AdapterReply(output=answer, cost_cents=cost_cents)
    if not isinstance(answer, AdapterReply):
        return None
    AdapterReply.model_validate(dict(answer))  # a copy with changes was never checked
    canonical({"mutations": answer.mutations, "error": answer.error and answer.error.to_json()})
    return answer


def _text(value: Any, max_chars: int) -> str:
    """As text that can be stored: whole characters, and not too many."""
    return str(value)[:max_chars].encode(errors="replace").decode()


def _refuse_misfit(
    adapter_id: str,
    declared: Mapping[str, CapabilityDefinition],
    functions: Mapping[str, Function],
    lookups: Mapping[str, Function],
    inline: frozenset[str],
) -> None:
    wrong = [(name, "is declared and has no function", "give it one") for name in declared.keys() - functions.keys()]
    named = functions.keys() | lookups.keys() | inline
    wrong += [(name, "is not declared", "declare the capability") for name in named - declared.keys()]
    for name, capability in declared.items():
        if capability.idempotency.strategy == "lookup" and name not in lookups:
            wrong.append((name, "says it can be looked up and has no lookup", "give it one"))
        if name in inline and (capability.kind == "write" or inspect.iscoroutinefunction(functions.get(name))):
            wrong.append((name, "is no plain read, so it cannot run inline", "leave it out of `inline`"))
    if wrong:
        raise InvalidSettings(
            *(
                Problem(f"/adapters/{adapter_id}/{name}", "misfit", f"`{name}` {what}", mend)
                for name, what, mend in sorted(wrong)
            )
        )
