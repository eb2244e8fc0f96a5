"""Ports to everything but storage: time, chance, identity, keys, adapters, admission, the witness and the engine."""

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
    """The only source of time, in Unix microseconds."""

    def now_us(self) -> int: ...


class Entropy(Protocol):
    """The only source of random bytes."""

    def take(self, count: int) -> bytes:
        """Return `count` random bytes that nobody can predict."""
        ...


class Directory(Protocol):
    """Identities as an identity provider or the registry verified them. Nothing in them comes from a request's body."""

    async def resolve(self, tenant_id: str, user_id: str, agent_id: str) -> Principals | None:
        """Return the user and the agent as they are now, or None unless the tenant's directory knows both."""
        ...

    async def approver(self, tenant_id: str, approver_id: str) -> Approver | None:
        """Return a person who is allowed to answer approvals, with the roles and public keys of now, or None."""
        ...


class Admission(Protocol):
    """Bounds how much this process does at once, in total and for each tenant. Stores nothing.

    A caller counts from its request to its answer. A run has a turn while it is driven, and gives it up while it waits
    for an adapter; tenants take turns. A run waits for a turn and is never refused one, so a run that began goes on.
    """

    def caller(self, tenant_id: str) -> AbstractContextManager[None]:
        """Count a caller until the context exits. Raises `Overloaded` at once if there is no room."""
        ...

    def begin(self, tenant_id: str) -> None:
        """Count a new run. Raises `Overloaded` if the tenant's quota is used up, with the time until the next run."""
        ...

    def turn(self, tenant_id: str, run_id: str) -> AbstractAsyncContextManager[None]:
        """Wait for a turn, and hold it until the context exits."""
        ...

    def yield_turn(self, tenant_id: str, run_id: str) -> AbstractAsyncContextManager[YieldedTurn]:
        """Give the turn up inside the context, while the run waits for an adapter; on exit, wait for a turn again.

        A run that comes back goes before runs of its tenant that have not begun. When the context has exited,
        `YieldedTurn.waited_us` is how long the run waited to come back.
        """
        ...

    async def yield_to_others(self, tenant_id: str, run_id: str) -> None:
        """Return when this run can take the next step of its turn. Others can go first, for a short bounded time."""
        ...


class Witness(Protocol):
    """Keeps heads where the owner of the store cannot rewrite them. A head that was put is never changed or removed."""

    async def put(self, heads: Sequence[WitnessedHead]) -> None:
        """Store the heads durably. Raises `Unavailable`; no run waits for a witness, the heads are put again later."""
        ...

    async def heads(self, tenant_id: str) -> Sequence[WitnessedHead]:
        """Return every head that was put for a tenant, in order.

        Raises:
            Unavailable: the witness did not answer.
            Integrity: its answer is not the record of a witness.
        """
        ...


class Adapter(Protocol):
    """An external system behind the Tool Gateway.

    `call` raises `Unavailable` if it is certain that nothing happened, and `LostReply` if it is not certain. A business
    error is a reply and not an exception.
    """

    def describe(self) -> AdapterDefinition: ...

    async def call(self, capability: str, args: Mapping[str, JsonValue], context: CallContext) -> AdapterReply: ...

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        """Return what an earlier call with this key did, or None if the system knows no such call."""
        ...


class Keys(Protocol):
    """The signing keys of this runtime and the public keys that it trusts. The key determines the algorithm."""

    def sign(self, purpose: str, payload: bytes) -> tuple[str, bytes]:
        """Sign with the current key for `purpose` (`head`, `claim`, `export`, `pack`); return (kid, signature)."""
        ...

    def verify(self, purpose: str, kid: str, payload: bytes, signature: bytes) -> bool:
        """Whether a key trusted for `purpose` made this signature; False for an unknown key."""
        ...

    def kids(self, purpose: str) -> Sequence[str]:
        """Return the ids of the keys trusted for `purpose`, the signing key first."""
        ...


class Engine(Protocol):
    """Calls `advance` for every run that is due.

    `submit` and `at` are hints that can be lost; the engine finds every due run in the store.
    """

    def submit(self, tenant_id: str, run_id: str) -> None:
        """Drive the run soon."""
        ...

    def at(self, tenant_id: str, run_id: str, when_us: int) -> None:
        """Drive the run at `when_us` (Unix µs)."""
        ...


class Estimator(Protocol):
    """Counts tokens. `name` pins the way of counting, for example `bytes_div_4@1`."""

    name: str

    def count(self, text: str) -> int: ...
