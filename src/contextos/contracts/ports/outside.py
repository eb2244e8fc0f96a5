"""Ports to everything but storage: time, chance, identity, keys, adapters, admission, the witness and the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from contextos.contracts.admission_limits import YieldedTurn
from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.envelopes.identity import Approver, HeldRoles, KnownDelegation, Principals
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

    async def knows_tenant(self, tenant_id: str) -> bool:
        """Return whether this tenant exists. A request of an unknown tenant is refused before anything is stored."""
        ...

    async def resolve(self, tenant_id: str, user_id: str, agent_id: str) -> Principals | None:
        """Return the user and the agent as they are now, or None unless the tenant's directory knows both."""
        ...

    async def delegation(self, tenant_id: str, token_ref: str) -> KnownDelegation | None:
        """Return the delegation that a token reference names, or None if there is none or it was revoked."""
        ...

    async def approver(self, tenant_id: str, approver_id: str) -> Approver | None:
        """Return a person who is allowed to answer approvals, with their present roles and public keys, or None."""
        ...

    async def held_roles(self, tenant_id: str) -> HeldRoles:
        """Return the roles that somebody in the tenant holds now. By it lint finds roles that nobody holds."""
        ...


class Admission(Protocol):
    """Bounds how much this process does at once, in total and for each tenant. Stores nothing.

    A caller counts from its request to its answer. A run has a turn while it is driven, and gives it up while it waits
    for an adapter; tenants take turns. A run waits for a turn and is never refused one, so a run that began goes on.
    """

    def caller(self, tenant_id: str, request_id: str = "") -> AbstractContextManager[None]:
        """Return a context that counts one caller while it is open. Raises `Overloaded` at once if too many are
        counted, or if this request was refused and comes back before its time.
        """
        ...

    def begin(self, tenant_id: str) -> None:
        """Count one more new run of the tenant. Raises `Overloaded` if its quota is used up, with the time until the
        next run.
        """
        ...

    def turn(self, tenant_id: str, run_id: str) -> AbstractAsyncContextManager[None]:
        """Return a context that waits for the right to drive this run (a turn) and holds it until the context exits."""
        ...

    def yield_turn(self, tenant_id: str, run_id: str) -> AbstractAsyncContextManager[YieldedTurn]:
        """Return a context in which the run gives up its turn while it waits for an adapter; on exit it waits for a
        new turn.

        It then goes before runs of its tenant that have not begun. Afterwards `YieldedTurn.waited_us` is the time, in
        microseconds, that it waited.
        """
        ...

    async def yield_to_others(self, tenant_id: str, run_id: str) -> None:
        """Wait until this run is allowed to take its next step. Other tenants can go first, for a short, bounded
        time.
        """
        ...


class Witness(Protocol):
    """Keeps signed journal heads (length and last hash of a stream) in a place that the owner of the store cannot
    rewrite.
    """

    async def put(self, heads: Sequence[WitnessedHead]) -> None:
        """Store the heads durably. Raises `Unavailable`; the caller then tries again later, and no run waits for it."""
        ...

    async def heads(self, tenant_id: str, *, since_us: int = 0) -> Sequence[WitnessedHead]:
        """Return every head that was stored for a tenant, in order.

        With `since_us` (Unix microseconds) earlier heads can be left out, but not the last one of each stream.

        Raises:
            Unavailable: the witness did not answer.
            Integrity: its answer is malformed or not authentic.
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
        """Ask the external system what an earlier call with this key did. Returns None if it knows no such call.

        An error in the reply says that the earlier call was refused, so nothing happened. A look-up that was refused
        itself raises `LostReply`.
        """
        ...


class ExpectsCalls(Protocol):
    """An adapter that has something to check before each call, and can begin it early. Optional beside `Adapter`."""

    def expect_call(self, capability: str, tool_call_id: str) -> None:
        """Begin the check for a call that will probably follow; returns at once.

        The call can also never follow, or come hours later. Nothing of it may happen here, and nothing is connected.
        """
        ...


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file as it was fetched: the media type that its server states, and its bytes."""

    media_type: str
    content: bytes = field(repr=False)


class Attachments(Protocol):
    """Fetches the files that requests name. The tool gateway alone asks it, and checks what it returns."""

    async def fetch(self, tenant_id: str, uri: str, max_bytes: int, trace: Mapping[str, str]) -> AttachedFile:
        """Return the whole file at `uri`, which has to be at a place that belongs to the tenant. No more than
        `max_bytes` are read. `trace` has the W3C trace headers of the request, for a server outside.

        Raises:
            InvalidInput: the address does not belong to the tenant (then nothing is fetched), or the file is missing or
                too large.
            Unavailable: it cannot be fetched now; try again.
        """
        ...


class Code(Protocol):
    """The digests of the code that this process runs. Those of the runtime and of adapters are taken when the code is
    loaded and do not change.
    """

    def runtime(self) -> str:
        """Return the digest of the runtime's own build."""
        ...

    def adapter(self, adapter: Adapter) -> str | None:
        """Return the digest of an adapter's code, or None if its source cannot be read."""
        ...

    def packages(self, adapter: Adapter) -> Callable[[], str | None] | None:
        """Return a function that reads from the disk the digest of all other code that an adapter's code imports; None
        if it imports nothing. The function returns None once the code on the disk is not the code that was loaded.
        """
        ...


Signer = Callable[[str], Awaitable[Approver | None]]
"""Returns the signer with this id as the directory lists them now, or None. The stream `control` states it first."""


class Keys(Protocol):
    """The signing keys of this runtime and the public keys that it trusts. The key determines the algorithm."""

    def sign(self, purpose: str, payload: bytes) -> tuple[str, bytes]:
        """Sign with the current key for `purpose`; return (key id, signature).

        The purposes are `head`, `claim`, `export`, `pack`, `active`, `act` and `checkpoint`.
        """
        ...

    def verify(self, purpose: str, kid: str, payload: bytes, signature: bytes, *, at_us: int | None = None) -> bool:
        """Return whether a key that is trusted for `purpose` made this signature; False for an unknown key id.

        `at_us` (Unix microseconds) is when it was made, as far as the message says: a key that was retired before then
        does not count.
        """
        ...

    def kids(self, purpose: str) -> Sequence[str]:
        """Return the ids of the keys trusted for `purpose`, the signing key first."""
        ...

    def public_key(self, purpose: str, kid: str) -> bytes | None:
        """Return the 32 raw bytes of the public key `kid`, or None if there is no such key for `purpose`."""
        ...


class HoldsKeys(Protocol):
    """Keys whose private halves are in this process. Optional beside `Keys`."""

    def discloses(self, text: str) -> bool:
        """Return whether a text, or the JSON of a value, contains the private half of one of these keys."""
        ...


class Engine(Protocol):
    """Drives every run of the deployment when it is due, by calling `advance`.

    `submit` and `at` are hints that can be lost; the engine also finds due runs in the store.
    """

    def submit(self, tenant_id: str, run_id: str) -> None:
        """Ask the engine to drive the run soon."""
        ...

    def at(self, tenant_id: str, run_id: str, when_us: int) -> None:
        """Ask the engine to drive the run at `when_us` (Unix microseconds)."""
        ...


class Estimator(Protocol):
    """Counts the tokens of a text. `name` identifies the method of counting, for example `bytes_div_4@1`."""

    name: str

    def count(self, text: str) -> int: ...
