"""`FileDirectory`: users, agents and approvers from a JSON file; the development stand-in for an identity provider.

The runtime never writes the file. It is read again whenever it changes, so a role that is removed is gone at the next
lookup. Every record made with it is marked `unsafe_local_directory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import RootModel, Strict

from contextos.adapters.file_status import is_settled
from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.yaml_text import lines_in
from contextos.contracts.envelopes.identity import (
    Approver,
    DirectoryLimits,
    HeldRoles,
    KnownAgent,
    KnownDelegation,
    KnownUser,
    Principals,
)
from contextos.contracts.model import ListOnly, Model
from contextos.errors import InvalidInput, InvalidSettings, Problem, Unavailable
from contextos.files import read_regular_file

MARK: Final = "unsafe_local_directory"
MAX_DIRECTORY_BYTES: Final = 8 << 20

ListedT = TypeVar("ListedT")
_ListOf = Annotated[tuple[ListedT, ...], Strict(False), ListOnly()]


class _ListedTenant(Model):
    users: _ListOf[KnownUser]
    agents: _ListOf[KnownAgent]
    approvers: _ListOf[Approver]
    delegations: dict[str, KnownDelegation] = {}
    limits: DirectoryLimits = DirectoryLimits()


class _Listed(RootModel[dict[str, _ListedTenant]]):
    """The content of a directory file."""


class FileDirectory:
    """The `Directory` port over `{tenant: {users, agents, approvers, delegations, limits}}`: lists of `KnownUser`,
    `KnownAgent` and `Approver`, `KnownDelegation` by token reference, and the tenant's `DirectoryLimits`. The last two
    can be left out.

    Raises:
        InvalidSettings: from the constructor, if the file cannot be read.
        Unavailable: from every method, if the file cannot be read any more; nobody is known then.
    """

    unsafe: tuple[str, ...] = (MARK,)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] | None = None
        self._tenants: dict[str, dict[str, Any]] = {}
        try:
            self._current()
        except Unavailable as error:
            if isinstance(error.__cause__, InvalidInput):
                raise InvalidSettings(*error.__cause__.in_file(path.name, "/directory")) from None
            raise InvalidSettings(Problem("/directory", "unreadable", error.detail, "name a directory file")) from None

    async def knows_tenant(self, tenant_id: str) -> bool:
        """Return whether the file has this tenant."""
        return bool(await self._tenant(tenant_id))

    def tenants(self) -> tuple[str, ...]:
        """Return the tenants that the file names, sorted."""
        return tuple(sorted(self._current()))

    def people(self, tenant_id: str) -> tuple[str, ...]:
        """Return the ids of the users and the approvers of a tenant, sorted."""
        tenant = self._current().get(tenant_id, {})
        return tuple(sorted({*tenant.get("users", {}), *tenant.get("approvers", {})}))

    async def resolve(self, tenant_id: str, user_id: str, agent_id: str) -> Principals | None:
        """Return the user and the agent as the file has them now, or None if it lacks either of them in this tenant."""
        tenant = await self._tenant(tenant_id)
        user, agent = await self._user(tenant_id, tenant, user_id), tenant.get("agents", {}).get(agent_id)
        if user is None or agent is None:
            return None
        ids = {user.user_id, agent.owner}
        return Principals(
            user=user,
            agent=agent,
            tenant=tenant["limits"],
            unsafe=self.unsafe,
            directory_version=tenant.get("version"),
            approver_ids=tuple(sorted(name for name, entry in tenant["approvers"].items() if ids & {*entry.user_ids})),
        )

    async def delegation(self, tenant_id: str, token_ref: str) -> KnownDelegation | None:
        """Return the delegation that a token reference names, or None."""
        delegation: KnownDelegation | None = (await self._tenant(tenant_id)).get("delegations", {}).get(token_ref)
        return delegation

    async def user(self, tenant_id: str, user_id: str) -> KnownUser | None:
        """Return a user as the directory has them now, or None."""
        return await self._user(tenant_id, await self._tenant(tenant_id), user_id)

    async def agent(self, tenant_id: str, agent_id: str) -> KnownAgent | None:
        """Return an agent as the file has it now, or None."""
        agent: KnownAgent | None = (await self._tenant(tenant_id)).get("agents", {}).get(agent_id)
        return agent

    async def workload_agents(self, tenant_id: str, spiffe_id: str) -> tuple[KnownAgent, ...]:
        """Return the agents of a workload, in whatever state they are; empty if it has none in this tenant."""
        agents = (await self._tenant(tenant_id)).get("agents", {}).values()
        return tuple(agent for agent in agents if agent.workload_identity == spiffe_id)

    async def delegations_to(self, tenant_id: str, user_id: str, agent_id: str) -> tuple[str, ...]:
        """Return the references of the delegations of a user to an agent that the file has, sorted."""
        entries = (await self._tenant(tenant_id)).get("delegations", {}).items()
        return tuple(sorted(ref for ref, entry in entries if (entry.subject, entry.agent_id) == (user_id, agent_id)))

    async def approver(self, tenant_id: str, approver_id: str) -> Approver | None:
        """Return a person who is allowed to answer approvals, or None."""
        approver: Approver | None = (await self._tenant(tenant_id)).get("approvers", {}).get(approver_id)
        return approver

    async def held_roles(self, tenant_id: str) -> HeldRoles:
        """Return the roles that the users and approvers of the tenant hold, and everybody whom the file lists."""
        tenant = await self._tenant(tenant_id)
        members = {
            name: tuple(tenant.get(name, {}).values()) for name in ("users", "approvers", "agents", "delegations")
        }
        return HeldRoles(
            users=tuple(sorted({role for user in members["users"] for role in (user.role, *user.roles)})),
            approvers=tuple(sorted({role for approver in members["approvers"] for role in approver.roles})),
            people=members["approvers"],
            agents=members["agents"],
            requesters=members["users"],
            delegations=members["delegations"],
            limits=tenant.get("limits", DirectoryLimits()),
        )

    async def _tenant(self, tenant_id: str) -> dict[str, Any]:
        """Return the current content of a tenant, {} for a tenant that the file does not name."""
        return self._current().get(tenant_id, {})

    async def _user(self, _tenant_id: str, tenant: Mapping[str, Any], user_id: str) -> KnownUser | None:
        user: KnownUser | None = tenant.get("users", {}).get(user_id)
        return user

    def _current(self) -> dict[str, dict[str, Any]]:
        try:
            state = self._path.stat()
            # A copy can keep its modification time, but nobody can set the time of the last change or the inode.
            stamp = (state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_size)
            if stamp != self._stamp:
                self._tenants = self._read(read_regular_file(self._path, MAX_DIRECTORY_BYTES))
                self._stamp = stamp if is_settled(state) else None
        except OSError as error:
            raise Unavailable("directory", f"`{self._path.name}` cannot be read ({error.strerror})") from None
        except (InvalidInput, KeyError, TypeError, AttributeError) as error:
            # The file can be half written. The identities read before are not used then.
            faults = "; ".join([str(problem) for problem in getattr(error, "problems", ())] or [str(error)])
            detail = f"`{self._path.name}` is not a directory of identities ({faults})"
            raise Unavailable("directory", detail) from error
        return self._tenants

    def _read(self, raw: bytes) -> dict[str, dict[str, Any]]:
        with lines_in(raw):
            return tenants_of(loads(raw, max_bytes=MAX_DIRECTORY_BYTES))


def tenants_of(content: Any) -> dict[str, dict[str, Any]]:
    """Return the identities of each tenant as typed values, from the content of a directory file.

    Raises:
        InvalidInput: the content is not a directory; it names each fault and its place.
    """
    return {
        tenant_id: {
            "users": {user.user_id: user for user in entry.users},
            "agents": {agent.agent_id: agent for agent in entry.agents},
            "delegations": dict(entry.delegations),
            "approvers": _merge_names({approver.approver_id: approver for approver in entry.approvers}),
            "limits": entry.limits,
        }
        for tenant_id, entry in parse(_Listed, content).root.items()
    }


def _merge_names(approvers: dict[str, Approver]) -> dict[str, Approver]:
    """Return the approvers, each with all names of the person. Two that share a name, also via a third, are one."""
    names_of: dict[str, set[str]] = {}
    for name, approver in approvers.items():
        names = {name, *approver.user_ids}.union(*(names_of.get(alias, ()) for alias in (name, *approver.user_ids)))
        names_of |= dict.fromkeys(names, names)
    return {
        name: approver
        if names_of[name] == {name, *approver.user_ids}
        else approver.model_copy(update={"user_ids": tuple(sorted(names_of[name] - {name}))})
        for name, approver in approvers.items()
    }
