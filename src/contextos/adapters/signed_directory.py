"""`SignedDirectory`: users, agents and approvers from a file that its keeper signs, in versions that only go up.

The file is a DSSE envelope (as a pack is) whose payload is `{"version": …, "tenants": …}`; `tenants` has the form of
the development directory. The settings name the public keys of the people who may sign it. Each version that is used is
stated in `control` of each tenant, under the seal of acts. So an older file that is put back is refused by every
process of the deployment, also after a restart. Records name the version of the identities that they are based on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, TypedDict

from contextos.adapters.directory import MAX_DIRECTORY_BYTES, FileDirectory, tenants_of
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.model import MAX_COUNT
from contextos.contracts.ports.outside import Clock, Entropy, Keys
from contextos.contracts.ports.storage import Stores
from contextos.errors import (
    Integrity,
    InvalidInput,
    InvalidSettings,
    Problem,
    SignatureInvalid,
    StoreRestored,
    Unavailable,
)
from contextos.trust.approvals.people import state_directory
from contextos.trust.seal import KeyRing, open_sealed, seal

DIRECTORY_TYPE: Final = "application/vnd.contextos.directory+json"
AskWitness: TypeAlias = Callable[[str], Awaitable[None]]


class Sealing(TypedDict):
    """The ports with which a directory seals its versions, and the witness that it asks before it writes a version."""

    keys: Keys
    clock: Clock
    entropy: Entropy
    ask_witness: AskWitness


def sign_directory(tenants: Mapping[str, Any], version: int, private_key: bytes) -> bytes:
    """Return the content of a signed directory file.

    `tenants` maps each tenant to its users, agents and approvers. `version` is higher than every one before.
    `private_key` is a raw Ed25519 private key of 32 bytes, which no runtime holds.

    Raises:
        InvalidInput: `tenants` is not a directory, or `version` is not a whole number from 1 on.
    """
    if type(version) is not int or not 1 <= version <= MAX_COUNT:
        raise InvalidInput(Problem("/version", "bad_version", "this is not a version", "count from 1 upwards"))
    tenants_of(dict(tenants))
    payload = canonical({"version": version, "tenants": dict(tenants)})
    return canonical(seal(DIRECTORY_TYPE, payload, KeyRing({"pack": private_key}), "pack")) + b"\n"


@dataclass(frozen=True, slots=True)
class _LinePorts:
    """The ports with which a line of `control` is written."""

    stores: Stores
    clock: Clock
    entropy: Entropy
    keys: Keys


class SignedDirectory(FileDirectory):
    """The `Directory` port over a signed file. `signers` are the raw public keys of the people who may sign it. Each
    version is stated in `control` before it is used, and sealed with `keys`. `ask_witness` is called with a tenant
    before anything is written for that tenant.

    `read_only`: nothing is written, so a new version is compared and not kept.

    Raises:
        InvalidSettings: from the constructor and from `check`: the file cannot be read, has no signature of `signers`,
            or its version is older than a version that was used.
        Unavailable: from every method, for the same reasons later; nobody is known then.
    """

    unsafe = ()

    def __init__(
        self,
        path: Path,
        signers: Sequence[bytes],
        stores: Stores,
        *,
        keys: Keys,
        clock: Clock,
        entropy: Entropy,
        ask_witness: AskWitness | None = None,
        read_only: bool = False,
    ) -> None:
        self._ask_witness = ask_witness
        # These keys sign directories alone: the payload type tells a directory from a pack.
        self._signers, self._stores, self._read_only = KeyRing({}, {"pack": tuple(signers)}), stores, read_only
        self._line_ports = _LinePorts(stores, clock, entropy, keys)
        self._version, self._digest = 0, ""
        super().__init__(path)

    async def check(self) -> None:
        """Compare the file with the newest version that each of its tenants used, and record it if it is newer."""
        try:
            for tenant_id in self.tenants():
                await self._tenant(tenant_id)
        except Unavailable as error:
            raise InvalidSettings(Problem("/directory", "old_version", str(error), "bring back the newest")) from None

    async def _tenant(self, tenant_id: str) -> dict[str, Any]:
        tenants = self._current()
        if tenant_id not in tenants:
            return {}
        version, content = self._version, self._digest
        tenant: dict[str, Any] = tenants[tenant_id]
        people = tenant["approvers"]
        try:
            if self._ask_witness is not None and not self._read_only:
                await self._ask_witness(tenant_id)
            newest = await state_directory(
                self._line_ports, tenant_id, version, content, people, write=not self._read_only
            )
        except (StoreRestored, Integrity):
            # Nothing is written until an operator, whom this version has to list, records the restore.
            newest = await state_directory(self._line_ports, tenant_id, version, content, people, write=False)
        if version < newest[0]:
            raise _unavailable(f"it has the version {version}, and version {newest[0]} was used before")
        if version == newest[0] and content != newest[1]:
            raise _unavailable(f"version {version} was used before with another content")
        return tenant

    def _read(self, raw: bytes) -> dict[str, dict[str, Any]]:
        try:
            payload = open_sealed(loads(raw, max_bytes=MAX_DIRECTORY_BYTES), self._signers, "pack", [DIRECTORY_TYPE])
        except SignatureInvalid as error:
            raise _unavailable(f"nobody who may signed it: {error}") from None
        content = loads(payload, max_bytes=MAX_DIRECTORY_BYTES)
        version = content["version"]
        if content.keys() != {"version", "tenants"} or type(version) is not int or not 1 <= version <= MAX_COUNT:
            raise _unavailable("it has not exactly a version from 1 on, and tenants")
        if version < self._version:
            raise _unavailable(f"it has the version {version}, and version {self._version} was used before")
        # Kept with the people, so that a record names its own version, also while a newer version is read.
        tenants = {name: {**entry, "version": version} for name, entry in tenants_of(content["tenants"]).items()}
        self._version, self._digest = version, digest(payload)
        return tenants


def _unavailable(detail: str) -> Unavailable:
    return Unavailable("directory", f"the signed file: {detail}")
