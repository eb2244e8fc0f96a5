"""Pin a run to code: the runtime's own build, the code of each adapter that its pack registers, and what that code
imports.

A call is bound to the code of its own adapter as this process loaded it when the run was admitted. Another process,
after a restart or an upgrade, can run other code, and an installed package can change below a running process: then an
approval is void, no write is sent, and no adapter whose code changed is called. The runtime's build is only recorded; a
run is bound to the number of its semantics.
Source: docs/adr/0064-a-call-is-bound-to-the-code-that-it-uses.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from contextos.contracts.documents.catalog import ACTIVE_SET_KEY, ACTIVE_SETS
from contextos.contracts.documents.operations import quarantine_key
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Write
from contextos.contracts.model import final_fields
from contextos.contracts.ports.outside import Adapter
from contextos.contracts.scope import ADAPTER, CODE, PACKAGES, RUNTIME, Capability, RunScope
from contextos.control.artifact_repository import Looked
from contextos.errors import Unavailable
from contextos.runtime.environment import RunEnvironment
from contextos.trust.identity.principals import look_up

LOOK_SHARED_US: Final = 1_000_000


def with_code(pin_set: dict[str, Any], environment: RunEnvironment) -> dict[str, Any]:
    """Add the pins of the code to a set that `Catalog.pin` returned. Returns the set, or the failure."""
    if "failure" in pin_set:
        return pin_set
    adapters = [name.removeprefix(ADAPTER) for name in pin_set["pins"] if name.startswith(ADAPTER)]
    imports = [name for adapter_id in adapters if (name := PACKAGES + adapter_id) in environment.ports.packages]
    code = code_now([RUNTIME, *[CODE + name for name in adapters], *imports], environment)
    unreadable = [name for name, digest in code.items() if digest is None]
    if unreadable:
        reason = "its source cannot be read; load the adapter from a file"
        if unreadable[0].startswith(PACKAGES):
            reason = "a file that it imports changed since this process loaded it; start the process again"
        detail = f"`{unreadable[0]}` cannot be pinned, because {reason}"
        return {"failure": {"code": "unknown_ref", "detail": detail}}
    return {**pin_set, "pins": {**pin_set["pins"], **code}}


def code_now(names: Collection[str], environment: RunEnvironment) -> dict[str, str | None]:
    """Return the current digest of each pin in `names` that is about code, read anew. Other names are left out."""
    code, packages = environment.ports.code, environment.ports.packages
    environment.looked.clear()
    return {
        name: _imports_digest(packages[name], environment) if name in packages else code.get(name)
        for name in names
        if name == RUNTIME or name.startswith((CODE, PACKAGES))
    }


def _imports_digest(read_digest: Callable[[], str | None], environment: RunEnvironment) -> str | None:
    """Return the digest that `read_digest` returns. One that was read less than `LOOK_SHARED_US` ago counts again:
    adapters of one file share what they import, and a call is sent right after the recheck that read it anew.
    """
    now_us = environment.ports.clock.now_us()
    cached = environment.looked.get(read_digest)
    if cached is None or not 0 <= now_us - cached[0] < LOOK_SHARED_US:
        cached = environment.looked[read_digest] = now_us, read_digest()
    return cached[1]


async def pins_now(
    pins: Collection[str], environment: RunEnvironment, looked: Looked = None
) -> tuple[int, dict[str, str | None]]:
    """Return the version of the active set, and the digest of each of these pins as of now, as `Catalog.pins_now`."""
    adapters, (used, published, code) = environment.ports.adapters, _split_pins(tuple(pins))
    definitions = {name: adapter.describe() for name in used if (adapter := adapters.get(name)) is not None}
    version, digests = await environment.artifacts.catalog.pins_now(published, definitions, looked)
    return version, digests | code_now(code, environment)


@lru_cache(maxsize=16)
def _split_pins(pins: tuple[str, ...]) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Split the names of pins into ids of adapters, names that the catalog knows, and names of pins of code."""
    published = tuple(name for name in pins if not name.startswith((CODE, PACKAGES)))
    code = tuple(name for name in pins if name == RUNTIME or name not in published)
    return tuple(name.removeprefix(ADAPTER) for name in pins if name.startswith(ADAPTER)), published, code


async def recheck_preconditions(
    environment: RunEnvironment, scope: RunScope, key: str, capability: Capability | None
) -> tuple[Failure | None, Write]:
    """Look up the user, the agent and every pin that a call uses again, right before a write is sent or a session
    reads. Returns what changed, or None, and the check that the active policies have not changed.
    """
    pins = scope.pinned.used_by(*([capability] if capability else []))
    admitted = scope.identity.principals

    async def look() -> dict[str, Any]:
        principals = await look_up(environment.ports.directory, scope.received.request, environment.journal.time_us)
        # If the policies get a later version, the commit before the sending fails.
        version, now = await pins_now(pins, environment, await environment.barrier.found(active=True))
        return {
            "principals": admitted.looked_up_again(principals),
            "policies_version": version,
            "changed": [] if now == pins else sorted(pin for pin in {**pins, **now} if now.get(pin) != pins.get(pin)),
        }

    query = {"user_id": admitted.user.user_id, "agent_id": admitted.agent.agent_id, "pins": pins}
    answer = await environment.journal.record("identity.resolved", f"dispatch/{key}", query, look)
    failure = None
    current = admitted.of_later(answer["principals"])
    if current is None or not current.same_as(admitted):
        failure = Failure(code="identity_refused", detail="since the run was admitted the user or the agent changed")
    elif answer["changed"]:
        detail = f"since the run was admitted `{answer['changed'][0]}` changed or was withdrawn"
        failure = Failure(code="unknown_ref", detail=detail)
    return failure, ACTIVE_SETS.check(ACTIVE_SET_KEY, answer["policies_version"])


def pinned_quarantine_key(pins: Mapping[str, str], capability: Capability) -> str:
    """Return the key of the quarantine of the version of a capability that a run is pinned to."""
    code = pins.get(CODE + capability.adapter.adapter_id, "")
    return quarantine_key(capability.capability_id, capability.definition_digest, code)


@final_fields
class PinnedAdapters(Mapping[str, Adapter]):
    """The adapters of this process by id. An adapter that is not the pinned code when it is asked for, or has no pin,
    answers no call.
    """

    environment: RunEnvironment
    pins: Mapping[str, str]

    def __getitem__(self, name: str) -> Adapter:
        ports, packages = self.environment.ports, PACKAGES + name
        adapter, code = ports.adapters[name], ports.code.get(CODE + name)
        is_unchanged = code is not None and code == self.pins.get(CODE + name)
        # The recorded and the current code can differ in whether they import anything.
        if is_unchanged and packages in self.pins:
            read_digest = ports.packages.get(packages)
            imported = _imports_digest(read_digest, self.environment) if read_digest is not None else None
            is_unchanged = imported is not None and imported == self.pins[packages]
        return adapter if is_unchanged else ChangedAdapter(name, adapter)

    def __iter__(self) -> Iterator[str]:
        return iter(self.environment.ports.adapters)

    def __len__(self) -> int:
        return len(self.environment.ports.adapters)


@dataclass(frozen=True, slots=True)
class ChangedAdapter:
    """An adapter whose code changed since the run was admitted. It is not called, so nothing happens."""

    adapter_id: str
    adapter: Adapter

    def describe(self) -> AdapterDefinition:
        return self.adapter.describe()

    async def call(self, *_: Any, **__: Any) -> AdapterReply:
        raise self._changed_error()

    async def lookup(self, *_: Any, **__: Any) -> AdapterReply | None:
        raise self._changed_error()

    def _changed_error(self) -> Unavailable:
        return Unavailable(self.adapter_id, "its code changed since the run was admitted; send a new request")
