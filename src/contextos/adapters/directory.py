"""`FileDirectory`: the development stand-in for an identity provider: who is who, from a JSON file.

The file is outside of what the runtime writes. It is read anew whenever it changes, so a role that was taken away is
gone at the next question. Every record made with it is marked `unsafe_local_directory`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.envelopes.identity import Approver, KnownAgent, KnownUser, Principals
from contextos.errors import ContextOSError, InvalidInput, InvalidSettings, Problem, Unavailable

MARK: Final = "unsafe_local_directory"
MAX_DIRECTORY_BYTES: Final = 8 << 20


class FileDirectory:
    """The `Directory` port over `{tenant: {users, agents, approvers}}`, each a list of the contract's objects."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._tenants: dict[str, dict[str, Any]] = {}
        try:
            self._fresh()
        except ContextOSError as error:
            raise InvalidSettings(Problem("/directory", "unreadable", str(error), "name a directory file")) from None

    async def resolve(self, tenant_id: str, user_id: str, agent_id: str) -> Principals | None:
        """Both identities as the file knows them now; None unless it knows both in this tenant."""
        tenant = self._fresh().get(tenant_id, {})
        user, agent = tenant.get("users", {}).get(user_id), tenant.get("agents", {}).get(agent_id)
        if user is None or agent is None:
            return None
        return Principals(user=user, agent=agent, unsafe=(MARK,))

    async def approver(self, tenant_id: str, approver_id: str) -> Approver | None:
        """A person who may answer approvals."""
        found: Approver | None = self._fresh().get(tenant_id, {}).get("approvers", {}).get(approver_id)
        return found

    def _fresh(self) -> dict[str, dict[str, Any]]:
        try:
            state = self._path.stat()
            stamp = (state.st_mtime_ns, state.st_size)
            if stamp != self._stamp:
                self._tenants = _read(self._path.read_bytes())
                self._stamp = stamp
        except OSError as error:
            raise Unavailable("directory", f"`{self._path.name}` cannot be read ({error.strerror})") from None
        except (InvalidInput, KeyError, TypeError, AttributeError) as error:
            # Half written, say. Who is who is not known then, and nobody is taken for who they were.
            raise Unavailable("directory", f"`{self._path.name}` is no directory now ({error})") from None
        return self._tenants


def _read(raw: bytes) -> dict[str, dict[str, Any]]:
    tenants: dict[str, dict[str, Any]] = {}
    for tenant_id, listed in loads(raw, max_bytes=MAX_DIRECTORY_BYTES).items():
        tenants[tenant_id] = {
            "users": {one["user_id"]: parse(KnownUser, one) for one in listed["users"]},
            "agents": {one["agent_id"]: parse(KnownAgent, one) for one in listed["agents"]},
            "approvers": {one["approver_id"]: parse(Approver, one) for one in listed["approvers"]},
        }
    return tenants
