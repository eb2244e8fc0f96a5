"""Ports to the outside of the core: time, chance, identity, keys, adapters, admission, the witness and the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

from contextos.contracts.admission_limits import YieldedTurn
from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.envelopes.identity import Approver, Principals
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.journal import WitnessedHead


class Clock(Protocol):
    """The only time there is. Unix time in microseconds."""

    def now_us(self) -> int: ...


class Entropy(Protocol):
    """The only chance there is."""

    def take(self, count: int) -> bytes: ...


class Directory(Protocol):
    """Who is who, from verified identity or the registry; nothing of it comes from a request's body."""

    async def resolve(self, tenant_id: str, user_id: str, agent_id: str) -> Principals | None:
        """The user and the agent as the tenant's directory knows them now; None if it does not know either."""
        ...

    async def approver(self, tenant_id: str, approver_id: str) -> Approver | None:
        """A person who may answer approvals, with roles and public keys as they are now."""
        ...


class Admission(Protocol):
    """How much is done at once in this process, and for whom: bounded in all and for each tenant. Stores nothing.

    A caller counts from the moment it asks until it has its answer. A run takes a turn while it is driven, and tenants
    take turns; it steps aside while an adapter is asked. Turns are waited for and never refused: who has begun goes on.
    """

    def caller(self, tenant_id: str) -> AbstractContextManager[None]:
        """One caller more, until it leaves. Raises `Overloaded` at once where there is no room."""
        ...

    def begin(self, tenant_id: str) -> None:
        """One new run more. Raises `Overloaded` where the tenant's quota is used up, with the time until the next."""
        ...

    def turn(self, tenant_id: str, run_id: str) -> AbstractAsyncContextManager[None]:
        """A place among the runs that are driven at once; waits for it."""
        ...

    def aside(self, tenant_id: str, run_id: str) -> AbstractAsyncContextManager[YieldedTurn]:
        """Leave the turn to others for as long as the run waits for the outside, and wait for it again.

        Who comes back goes before what of the tenant has not begun. `YieldedTurn` says afterwards how long that took.
        """
        ...

    async def make_way(self, tenant_id: str, run_id: str) -> None:
        """Return when this run may take its next step in its turn: others may go first, never for long."""
        ...


class Witness(Protocol):
    """Keeps heads where the owner of the store cannot rewrite them. What was put is never changed or taken back."""

    async def put(self, heads: Sequence[WitnessedHead]) -> None:
        """Durable when it returns. Raises `Unavailable`; nobody waits for a witness, it is asked again."""
        ...

    async def heads(self, tenant_id: str) -> Sequence[WitnessedHead]:
        """All that was put of a tenant, in order. Raises `Unavailable`, or `Integrity`: what is there is no witness."""
        ...


class Adapter(Protocol):
    """Something of the outside behind the Tool Gateway.

    `call` raises `Unavailable` when it is certain that nothing happened, and `LostReply` when it is not. A business
    error is a reply.
    """

    def describe(self) -> AdapterDefinition: ...

    async def call(self, capability: str, args: Mapping[str, JsonValue], context: CallContext) -> AdapterReply: ...

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        """What an earlier call with this key did; None if the outside knows of none."""
        ...


class Keys(Protocol):
    """Signing keys of this runtime, and the public keys it trusts. The algorithm comes from the key."""

    def sign(self, purpose: str, payload: bytes) -> tuple[str, bytes]:
        """(kid, signature) by the current key for `purpose` (`head`, `claim`, `export`, `pack`)."""
        ...

    def verify(self, purpose: str, kid: str, payload: bytes, signature: bytes) -> bool:
        """Whether a key that may sign for `purpose` made this signature; False for an unknown key."""
        ...

    def kids(self, purpose: str) -> Sequence[str]:
        """The ids of the keys trusted for `purpose`; the one that signs comes first."""
        ...


class Engine(Protocol):
    """Guarantees that somebody calls `advance` for a run that is due. Submitting is a hint, `due` is the truth."""

    def submit(self, tenant_id: str, run_id: str) -> None: ...

    def at(self, tenant_id: str, run_id: str, when_us: int) -> None: ...


class Estimator(Protocol):
    """Counts tokens; pinned by `name` (`bytes_div_4@1`)."""

    name: str

    def count(self, text: str) -> int: ...
