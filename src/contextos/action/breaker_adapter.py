"""Adapters behind circuit breakers: a call is admitted by its circuit, and the run yields its turn until the reply.

Every change of a circuit is written to the tenant's `breakers` documents for operators to read. Only the circuit in
this process decides about calls. Refuses a call with `CircuitOpen` while its circuit is open.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from contextos.action.breaker import Circuit, CircuitBreakers, CircuitKey, circuit_document
from contextos.contracts.admission_limits import YieldedTurn
from contextos.contracts.documents.operations import BREAKERS, circuit_key
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.journal import CONTROL, Batch
from contextos.contracts.ports.outside import Adapter, Clock
from contextos.contracts.ports.storage import Store
from contextos.errors import CircuitOpen, Conflict, LostReply, Overloaded, Unavailable


@dataclass(slots=True)
class SharedYield:
    """One yielded turn for all calls that a run makes at the same time.

    The first call yields the turn with `leave`, and the last one to return waits for the next turn. A call that begins
    during that wait does not yield again, because that would withdraw the wait.
    """

    leave: Callable[[], AbstractAsyncContextManager[YieldedTurn]]
    _out: int = 0
    _returning: bool = False
    _away: AbstractAsyncContextManager[YieldedTurn] | None = None
    _turn: YieldedTurn = field(default_factory=YieldedTurn)

    def __call__(self) -> AbstractAsyncContextManager[YieldedTurn]:
        return _SharedCall(self)

    async def begin(self) -> bool:
        """Count one more call. Returns False if the run is already waiting for its next turn."""
        if self._returning:
            return False
        self._out += 1
        if self._away is None:
            self._away = self.leave()
            self._turn = await self._away.__aenter__()
        return True

    async def end(self, *error: Any) -> int:
        """Count one call less; after the last one, wait for a turn. Returns the time waited, in microseconds."""
        self._out -= 1
        if self._out or self._away is None:
            return 0
        away, self._away, self._returning = self._away, None, True
        try:
            await away.__aexit__(*error)
        finally:
            self._returning = False
        return self._turn.waited_us


@dataclass(slots=True)
class _SharedCall(AbstractAsyncContextManager[YieldedTurn]):
    shared: SharedYield
    yielded: YieldedTurn = field(default_factory=YieldedTurn)
    counted: bool = False

    async def __aenter__(self) -> YieldedTurn:
        self.counted = await self.shared.begin()
        return self.yielded

    async def __aexit__(self, *error: object) -> None:
        if self.counted:
            self.yielded.waited_us = await self.shared.end(*error)


@dataclass(frozen=True, slots=True)
class OutboundPath:
    """The outbound path of one run: all its calls go through here.

    `yield_turn` is entered around each call. With `breakers` None, every call is admitted.
    `process` names this process.
    """

    tenant_id: str
    store: Store
    clock: Clock
    process: str
    breakers: CircuitBreakers | None
    yield_turn: Callable[[], AbstractAsyncContextManager[YieldedTurn]]

    @asynccontextmanager
    async def admitted(self, adapter_id: str, capability: str, not_after_us: int) -> AsyncIterator[YieldedTurn]:
        """Ask the circuit for one call, which the caller makes inside the context; report its outcome.

        Raises:
            CircuitOpen: the call is not admitted.
            Unavailable: `not_after_us` passed before the call could be sent.
        """
        if self.breakers is None:
            async with self.yield_turn() as yielded_turn:
                yield yielded_turn
            return
        key, now_us = (self.tenant_id, adapter_id, capability), self.clock.now_us()
        circuit, admitted, changed = self.breakers.admit(key, now_us)
        if not admitted:
            left_ms = max(1, -(-(circuit.retry_at_us - now_us) // 1_000))
            raise CircuitOpen(f"{adapter_id}.{capability}", circuit.retry_at_us, left_ms)
        if changed:
            await self._publish(key, circuit)
            if now_us <= not_after_us < self.clock.now_us():
                raise Unavailable(adapter_id, "its time was over before it was sent")
        async with self.yield_turn() as yielded_turn:
            try:
                yield yielded_turn
            except Overloaded:
                # This process had no capacity; that says nothing about the external system.
                raise
            except (Unavailable, LostReply):
                await self._report(self.breakers, key, circuit.changes, answer=False)
                raise
            await self._report(self.breakers, key, circuit.changes, answer=True)

    def open_until_us(self, adapter_id: str, capability: str) -> int:
        """Return when the next call will be admitted (Unix microseconds), or 0 if one is admitted now.

        Does not change the circuit.
        """
        if self.breakers is None:
            return 0
        return self.breakers.open_until_us((self.tenant_id, adapter_id, capability), self.clock.now_us())

    async def _report(self, breakers: CircuitBreakers, key: CircuitKey, began_at: int, *, answer: bool) -> None:
        circuit, changed = breakers.report(key, began_at, self.clock.now_us(), answer=answer)
        if changed:
            await self._publish(key, circuit)

    async def _publish(self, key: CircuitKey, circuit: Circuit) -> None:
        # A failure to write must not lose the call's outcome; the next change writes the circuit again.
        with suppress(Conflict, Unavailable):
            document_key = circuit_key(key[1], key[2])
            known = await BREAKERS.one(self.store, document_key)
            body = circuit_document(key, circuit, self.process)
            write = BREAKERS.write(document_key, known.version if known else 0, body)
            await self.store.commit(Batch(run=CONTROL, writes=(write,)))


@dataclass(slots=True)
class BreakerAdapter:
    """An `Adapter` that is called through a run's outbound path. `yielded_turn` belongs to its last call."""

    adapter_id: str
    adapter: Adapter
    path: OutboundPath
    yielded_turn: YieldedTurn = field(default_factory=YieldedTurn)

    def describe(self) -> AdapterDefinition:
        return self.adapter.describe()

    def open_until_us(self, capability: str) -> int:
        return self.path.open_until_us(self.adapter_id, capability)

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        async with self.path.admitted(self.adapter_id, capability, context.not_after_us) as self.yielded_turn:
            return await self.adapter.call(capability, args, context)

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        async with self.path.admitted(self.adapter_id, capability, context.not_after_us) as self.yielded_turn:
            return await self.adapter.lookup(capability, idempotency_key, context)


@dataclass(frozen=True, slots=True, eq=False)
class BreakerAdapters(Mapping[str, Adapter]):
    """The current adapters of a deployment, each called through a run's outbound path."""

    adapters: Mapping[str, Adapter]
    path: OutboundPath

    def __getitem__(self, adapter_id: str) -> Adapter:
        return BreakerAdapter(adapter_id, self.adapters[adapter_id], self.path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.adapters)

    def __len__(self) -> int:
        return len(self.adapters)
