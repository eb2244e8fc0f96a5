"""How the outside is reached: an adapter behind its circuit breaker, asked while the run lets others work.

Every change of a circuit is written to the tenant's `breakers`, so that an operator sees it. The document is a view for
people; what decides is the circuit in this process.
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
    """One yielded turn for all the calls that a run has out at the same time.

    The first call gives the turn away with `leave`, and the last one to come back waits for it. A call that begins
    while the turn is waited for goes out and leaves the turn alone: giving it away then would withdraw that wait.
    """

    leave: Callable[[], AbstractAsyncContextManager[YieldedTurn]]
    _out: int = 0
    _returning: bool = False
    _away: AbstractAsyncContextManager[YieldedTurn] | None = None
    _turn: YieldedTurn = field(default_factory=YieldedTurn)

    def __call__(self) -> AbstractAsyncContextManager[YieldedTurn]:
        return _SharedCall(self)

    async def begin(self) -> bool:
        """One call more; False while the turn is waited for."""
        if self._returning:
            return False
        self._out += 1
        if self._away is None:
            self._away = self.leave()
            self._turn = await self._away.__aenter__()
        return True

    async def end(self, *error: Any) -> int:
        """One call fewer. Returns how long the run then waited for its turn, in microseconds."""
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
    """One run's way out. `aside` is entered around each call; None for `breakers` lets every call through."""

    tenant_id: str
    store: Store
    clock: Clock
    process: str
    breakers: CircuitBreakers | None
    aside: Callable[[], AbstractAsyncContextManager[YieldedTurn]]

    @asynccontextmanager
    async def through(self, adapter_id: str, capability: str, not_after_us: int) -> AsyncIterator[YieldedTurn]:
        """Make one call inside. Raises `CircuitOpen` where nothing is sent, `Unavailable` where it got too late."""
        if self.breakers is None:
            async with self.aside() as aside:
                yield aside
            return
        place, now_us = (self.tenant_id, adapter_id, capability), self.clock.now_us()
        circuit, goes, changed = self.breakers.ask(place, now_us)
        if not goes:
            left_ms = max(1, -(-(circuit.retry_at_us - now_us) // 1_000))
            raise CircuitOpen(f"{adapter_id}.{capability}", circuit.retry_at_us, left_ms)
        if changed:
            await self._say(place, circuit)
            if now_us <= not_after_us < self.clock.now_us():
                raise Unavailable(adapter_id, "its time was over before it was sent")
        async with self.aside() as aside:
            try:
                yield aside
            except Overloaded:
                # It was this process that had no room; that says nothing of the other side.
                raise
            except (Unavailable, LostReply):
                await self._told(self.breakers, place, circuit.changes, answer=False)
                raise
            await self._told(self.breakers, place, circuit.changes, answer=True)

    def shut_until_us(self, adapter_id: str, capability: str) -> int:
        """When the next call may go through; 0 if one may now. It is only looked at: nothing changes."""
        if self.breakers is None:
            return 0
        return self.breakers.shut_until_us((self.tenant_id, adapter_id, capability), self.clock.now_us())

    async def _told(self, breakers: CircuitBreakers, place: CircuitKey, began_at: int, *, answer: bool) -> None:
        circuit, changed = breakers.tell(place, began_at, self.clock.now_us(), answer=answer)
        if changed:
            await self._say(place, circuit)

    async def _say(self, place: CircuitKey, circuit: Circuit) -> None:
        # What came of the call must not be lost because this could not be written; the next change writes it.
        with suppress(Conflict, Unavailable):
            key = circuit_key(place[1], place[2])
            known = await BREAKERS.one(self.store, key)
            body = circuit_document(place, circuit, self.process)
            write = BREAKERS.write(key, known.version if known else 0, body)
            await self.store.commit(Batch(run=CONTROL, writes=(write,)))


@dataclass(slots=True)
class BreakerAdapter:
    """An `Adapter` at the end of a run's way out, and how the run stood aside for the last call of it."""

    adapter_id: str
    adapter: Adapter
    way: OutboundPath
    aside: YieldedTurn = field(default_factory=YieldedTurn)

    def describe(self) -> AdapterDefinition:
        return self.adapter.describe()

    def shut_until_us(self, capability: str) -> int:
        return self.way.shut_until_us(self.adapter_id, capability)

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        async with self.way.through(self.adapter_id, capability, context.not_after_us) as self.aside:
            return await self.adapter.call(capability, args, context)

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        async with self.way.through(self.adapter_id, capability, context.not_after_us) as self.aside:
            return await self.adapter.lookup(capability, idempotency_key, context)


@dataclass(frozen=True, slots=True, eq=False)
class BreakerAdapters(Mapping[str, Adapter]):
    """The adapters of a deployment as they are at each look, each at the end of a run's way out."""

    adapters: Mapping[str, Adapter]
    way: OutboundPath

    def __getitem__(self, adapter_id: str) -> Adapter:
        return BreakerAdapter(adapter_id, self.adapters[adapter_id], self.way)

    def __iter__(self) -> Iterator[str]:
        return iter(self.adapters)

    def __len__(self) -> int:
        return len(self.adapters)
