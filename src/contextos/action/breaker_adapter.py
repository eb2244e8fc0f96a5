"""Put adapters behind circuit breakers: a breaker admits a call or not, and the run yields its turn until the reply.

While a circuit is open, a call raises `CircuitOpen`. Every change of a circuit is written to the tenant's `breakers`
documents for operators to read, and only the circuit in this process decides about calls.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from contextos.action.breaker import Circuit, CircuitBreakers, CircuitKey, circuit_document
from contextos.action.foreign_code import ForeignCode, describe_adapter
from contextos.contracts.admission_limits import YieldedTurn
from contextos.contracts.documents.operations import BREAKERS, circuit_key
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.journal import CONTROL, Batch
from contextos.contracts.model import changed, final_fields
from contextos.contracts.ports.outside import Adapter, Clock
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import Capability
from contextos.errors import CircuitOpen, Conflict, LostReply, Overloaded, Unavailable

ReplyT = TypeVar("ReplyT")

_LOG: Final = logging.getLogger("contextos.action")


@dataclass(slots=True)
class SharedYield:
    """One turn (the right of a run to be driven) that is given up for all calls that the run makes at the same time.

    The first call gives the turn up with `leave`, and the last one to return waits for the next turn. A call that
    begins during that wait does not give it up again, because that would withdraw the wait.
    """

    leave: Callable[[], AbstractAsyncContextManager[YieldedTurn]]
    _open_calls: int = 0
    _returning: bool = False
    _yielded: AbstractAsyncContextManager[YieldedTurn] | None = None
    _turn: YieldedTurn = field(default_factory=YieldedTurn)

    async def begin(self) -> bool:
        """Count one more call. Returns False, and counts nothing, if the run is already waiting to get a turn back."""
        if self._returning:
            return False
        self._open_calls += 1
        if self._yielded is None:
            self._yielded = self.leave()
            self._turn = await self._yielded.__aenter__()
        return True

    async def end(self, *error: Any) -> int:
        """Count one call less; after the last one, wait for a turn. Returns the time waited, in microseconds."""
        self._open_calls -= 1
        if self._open_calls or self._yielded is None:
            return 0
        yielded, self._yielded, self._returning = self._yielded, None, True
        try:
            await yielded.__aexit__(*error)
        finally:
            self._returning = False
        return self._turn.waited_us


@dataclass(slots=True)
class SharedCall(AbstractAsyncContextManager[None]):
    """One call during which the turn is given up. `waited_us` is how long the run then waited for a turn."""

    shared: SharedYield
    is_counted: bool = False
    waited_us: int = 0

    async def __aenter__(self) -> None:
        self.is_counted = await self.shared.begin()

    async def __aexit__(self, *error: object) -> None:
        if self.is_counted:
            self.waited_us = await self.shared.end(*error)


@final_fields
class OutboundPath:
    """All calls of one run to external systems go through this object, which asks the circuit breakers.

    `turn` is given up around each call. With `breakers` None every call is admitted. `process` is the name of this
    process. `foreign` bounds the time of calls and turns their faults into the exceptions that the port promises.
    """

    tenant_id: str
    store: Store
    clock: Clock
    process: str
    breakers: CircuitBreakers | None
    turn: SharedYield
    foreign: ForeignCode

    async def admit(self, adapter_id: str, capability: str, not_after_us: int) -> int:
        """Ask the circuit breaker to admit one call. Returns how often its circuit has changed; `report` needs it.

        Raises:
            CircuitOpen: the call is not admitted.
            Unavailable: `not_after_us` (Unix microseconds) passed before the call could be sent.
        """
        if self.breakers is None:
            return 0
        key, now_us = (self.tenant_id, adapter_id, capability), self.clock.now_us()
        circuit, admitted, changed = self.breakers.admit(key, now_us)
        if not admitted:
            retry_after_ms = max(1, -(-(circuit.retry_at_us - now_us) // 1_000))
            raise CircuitOpen(f"{adapter_id}.{capability}", circuit.retry_at_us, retry_after_ms)
        if changed:
            await self._publish(key, circuit)
            if now_us <= not_after_us < self.clock.now_us():
                raise Unavailable(adapter_id, "its time was over before it was sent")
        return circuit.changes

    async def report(self, adapter_id: str, capability: str, began_at: int, *, answer: bool) -> None:
        """Tell the circuit breaker whether an admitted call was answered."""
        if self.breakers is not None:
            key = (self.tenant_id, adapter_id, capability)
            circuit, changed = self.breakers.report(key, began_at, self.clock.now_us(), answer=answer)
            if changed:
                await self._publish(key, circuit)

    def open_until_us(self, adapter_id: str, capability: str) -> int:
        """Return when the circuit breaker admits the next call (Unix microseconds), or 0 if it admits one now.

        Does not change the circuit.
        """
        if self.breakers is None:
            return 0
        return self.breakers.open_until_us((self.tenant_id, adapter_id, capability), self.clock.now_us())

    def _log(self, key: CircuitKey, circuit: Circuit) -> None:
        """Log a circuit that opened or closed. A half-open circuit is only a trial and is not logged."""
        fields: dict[str, Any] = {"tenant": key[0], "capability": f"{key[1]}.{key[2]}"}
        # A handler or filter of the embedding application is foreign code: it must not change the outcome of the call.
        with suppress(Exception):
            if circuit.state == "open":
                retry_after_ms = (circuit.retry_at_us - circuit.since_us) // 1_000
                _LOG.warning("circuit opened", extra=fields | {"retry_after_ms": retry_after_ms})
            elif circuit.state == "closed":
                _LOG.info("circuit closed", extra=fields)

    async def _publish(self, key: CircuitKey, circuit: Circuit) -> None:
        self._log(key, circuit)
        # A failure to write must not lose the call's outcome; the next change writes the circuit again.
        with suppress(Conflict, Unavailable):
            document_key = circuit_key(key[1], key[2])
            stored = await BREAKERS.one(self.store, document_key)
            body = circuit_document(key, circuit, self.process)
            write = BREAKERS.write(document_key, stored.version if stored else 0, body)
            await self.store.commit(Batch(run=CONTROL, writes=(write,)))


@dataclass(slots=True)
class BreakerAdapter:
    """An adapter whose calls pass a circuit breaker."""

    adapter_id: str
    adapter: Adapter
    path: OutboundPath
    away: SharedCall | None = None

    @property
    def waited_us(self) -> int:
        """Return how long the run waited for its turn after the last call, in microseconds."""
        return self.away.waited_us if self.away else 0

    def describe(self) -> AdapterDefinition:
        return describe_adapter(self.adapter_id, self.adapter)

    def open_until_us(self, capability: str) -> int:
        return self.path.open_until_us(self.adapter_id, capability)

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        call = partial(self.adapter.call, capability, args, context)
        return await self._call(
            capability, context, partial(self.path.foreign.call, self.adapter_id, capability, context, call)
        )

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        call = partial(self.adapter.lookup, capability, idempotency_key, context)
        return await self._call(
            capability, context, partial(self.path.foreign.lookup, self.adapter_id, capability, context, call)
        )

    async def _call(self, capability: str, context: CallContext, call: Callable[[], Awaitable[ReplyT]]) -> ReplyT:
        """Make a call if the circuit breaker admits it. The run gives up its turn meanwhile. The outcome is reported to
        the circuit before the run waits for its next turn.
        """
        path = self.path
        began_at = await path.admit(self.adapter_id, capability, context.not_after_us)
        self.away = SharedCall(path.turn)
        async with self.away:
            try:
                reply = await call()
            except Overloaded:
                # This process had no capacity, which says nothing about the external system.
                raise
            except (Unavailable, LostReply):
                await path.report(self.adapter_id, capability, began_at, answer=False)
                raise
            await path.report(self.adapter_id, capability, began_at, answer=True)
            return reply


@dataclass(frozen=True, slots=True, eq=False)
class BreakerAdapters(Mapping[str, Adapter]):
    """A mapping from adapter id to adapter. Calls of each adapter pass a circuit breaker."""

    adapters: Mapping[str, Adapter]
    path: OutboundPath

    def __getitem__(self, adapter_id: str) -> Adapter:
        return BreakerAdapter(adapter_id, self.adapters[adapter_id], self.path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.adapters)

    def __len__(self) -> int:
        return len(self.adapters)


def without_turn(adapter: Adapter) -> Adapter:
    """Return an adapter behind its circuit breaker for a caller that holds no turn of a run, so it gives up none."""
    if not isinstance(adapter, BreakerAdapter):
        return adapter
    return changed(adapter, path=changed(adapter.path, turn=no_turn()))


def no_turn() -> SharedYield:
    """Return the `SharedYield` of a caller that holds no turn of a run: it gives up nothing."""
    return SharedYield(lambda: nullcontext(YieldedTurn()))


def expect_call(adapter: Adapter | None, capability: str, tool_call_id: str) -> None:
    """Announce a probable call to an adapter behind its circuit breaker, if the adapter implements `expect_call`."""
    if isinstance(adapter, BreakerAdapter):
        # The adapter is foreign code, and nothing was sent yet: the call itself will show the fault.
        with suppress(Exception):
            expect: Callable[[str, str], None] | None = getattr(adapter.adapter, "expect_call", None)
            if expect is not None and not adapter.open_until_us(capability):
                expect(capability, tool_call_id)


def circuit_open_until_us(adapters: Mapping[str, Adapter], capability: Capability) -> int:
    """Return when the circuit of a capability admits the next call (Unix microseconds), or 0 if it admits one now."""
    adapter = adapters.get(capability.adapter.adapter_id)
    return adapter.open_until_us(capability.definition.name) if isinstance(adapter, BreakerAdapter) else 0
