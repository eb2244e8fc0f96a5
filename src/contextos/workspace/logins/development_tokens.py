"""Makes tokens of the development issuer, and says where they count.

`development_fault` is the only rule: where it returns a reason, a token is neither made nor accepted.
"""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from contextos.adapters.directory import FileDirectory
from contextos.contracts.urls import is_loopback
from contextos.deployment.ports import Ports
from contextos.errors import InvalidInput, Problem
from contextos.trust.identity.development import DevelopmentToken, mint_development_token, verify_development_token
from contextos.workspace.settings import Settings, is_postgres_url
from contextos.workspace.settings.reading import invalid_setting

_PLACE_VARIABLES: Final = ("PGHOST", "PGSERVICE")
"""Environment variables from which the driver takes the place of the database if the URL names none."""
_OTHER_PARAMETERS: Final = frozenset(
    {"user", "password", "passfile", "port", "dbname", "database", "application_name", "connect_timeout"}
    | {"sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation"}
)


def development_fault(settings: Settings, bound_to: str | None = None) -> str | None:
    """Return why tokens of the development issuer do not count in a deployment, or None.

    `bound_to` is the host at which the deployment is served; None: it is not served, a token is only made. Tokens count
    if all of this holds: the profile is `embedded`, directory and keys are the plain files of a development workspace,
    the store is on this machine, and nobody can connect from another machine.
    """
    if settings.profile != "embedded":
        return f"the profile is `{settings.profile}`; the development issuer is for the profile `embedded`"
    if not isinstance(settings.directory, str) or not isinstance(settings.keys, str):
        return "the directory or the keys are not plain files; the development issuer is for workspaces on one machine"
    if is_postgres_url(settings.store) and not _is_local_store(settings.store):
        detail = "the store is on another machine, or its URL does not say where"
        return f"{detail}; the development issuer is for workspaces on one machine"
    if bound_to is not None and not is_loopback(bound_to):
        return f"`{bound_to[:80]}` can be reached from other machines; the development issuer is for the loopback"
    return None


async def roles_of(directory: FileDirectory, tenant_id: str, person_id: str) -> tuple[str, ...]:
    """Return the roles of a person in the directory now, as a user and as an approver; empty for an unknown person."""
    user, approver = await directory.user(tenant_id, person_id), await directory.approver(tenant_id, person_id)
    as_user = (user.role, *user.roles) if user is not None else ()
    return tuple(dict.fromkeys((*as_user, *(approver.roles if approver is not None else ()))))


async def development_token(
    settings: Settings,
    ports: Ports,
    tenant_id: str,
    *,
    user: str | None,
    agent: str | None,
    delegation: str | None,
    ttl_s: int,
) -> tuple[str, DevelopmentToken]:
    """Return a token of the development issuer for a user, an agent, or a user who delegates to an agent, and what it
    says.

    Its roles are the roles of the user in the directory now. If both a user and an agent are named, `delegation` is the
    reference of a delegation between them; None means the only delegation that the directory has.

    Raises:
        InvalidSettings: the development issuer does not count here, or the lifetime is out of bounds.
        InvalidInput: neither a user nor an agent is named, the directory does not know one of them, the agent is not
            active, or there is no such delegation.
    """
    fault, directory = development_fault(settings), ports.directory
    if fault is not None or not isinstance(directory, FileDirectory):
        detail = fault or "the directory is one of the program"
        remedy = "get a token from the issuer that the settings name"
        raise invalid_setting("/profile", "not_development", detail, remedy)
    if user is None and agent is None:
        raise InvalidInput(Problem("", "usage", "nobody is named", "name a user with --user, an agent with --agent"))
    roles = await roles_of(directory, tenant_id, user) if user is not None else ()
    if user is not None and not roles:
        raise _no_entry("/user", f"the directory knows no user or approver `{user[:80]}` with a role")
    directory_agent = await directory.agent(tenant_id, agent) if agent is not None else None
    if agent is not None and (directory_agent is None or directory_agent.lifecycle != "active"):
        raise _no_entry("/agent", f"the directory has no active agent `{agent[:80]}`")
    scopes: tuple[str, ...] = ()
    if user is not None and agent is not None:
        delegation = delegation or await _only_delegation(directory, tenant_id, user, agent)
        entry = await directory.delegation(tenant_id, delegation)
        if entry is None or (entry.subject, entry.agent_id) != (user, agent):
            raise _no_entry("/delegation", f"`{user[:80]}` delegates nothing to `{agent[:80]}` under this reference")
        scopes = tuple(entry.scopes)
    elif delegation is not None:
        detail = "a delegation is between a user and an agent"
        raise InvalidInput(Problem("/delegation", "usage", detail, "name both, or leave the delegation out"))
    now_us = ports.clock.now_us()
    token = mint_development_token(
        ports.keys,
        tenant_id=tenant_id,
        user_id=user,
        agent_id=agent,
        delegation=delegation,
        roles=roles,
        scopes=scopes,
        now_us=now_us,
        ttl_s=ttl_s,
    )
    return token, verify_development_token(token, ports.keys, now_us=now_us)


async def development_logins(settings: Settings, ports: Ports, *, ttl_s: int) -> list[tuple[str, str, str]]:
    """Return (tenant, person, token) for each person of the directory file who has a role, as `development_token`.

    Raises:
        InvalidSettings: as `development_token`.
    """
    directory = ports.directory
    if not isinstance(directory, FileDirectory):
        raise invalid_setting("/directory", "not_development", "the directory is one of the program", "use its logins")
    logins = []
    for tenant_id in directory.tenants():
        for person_id in directory.people(tenant_id):
            if await roles_of(directory, tenant_id, person_id):
                token, _ = await development_token(
                    settings, ports, tenant_id, user=person_id, agent=None, delegation=None, ttl_s=ttl_s
                )
                logins.append((tenant_id, person_id, token))
    return logins


async def _only_delegation(directory: FileDirectory, tenant_id: str, user: str, agent: str) -> str:
    refs = await directory.delegations_to(tenant_id, user, agent)
    if len(refs) != 1:
        choices = ", ".join(f"`{ref[:80]}`" for ref in refs[:8]) or "none"
        detail = f"the directory has these delegations of `{user[:80]}` to `{agent[:80]}`: {choices}"
        raise InvalidInput(Problem("/delegation", "delegation_required", detail, "name one with --delegation"))
    return refs[0]


def _is_local_store(url: str) -> bool:
    """Return whether every place that the driver would connect to is in the URL, and all are on this machine."""
    try:
        parts = urlsplit(url)
        host, query = parts.hostname, dict(parse_qsl(parts.query, keep_blank_values=True))
    except ValueError:
        return False
    # A `service` names its host in a file, and the driver ends a password at another `@` than this module does. It also
    # reads a list of hosts where this module sees the first of them and a port.
    has_host_list = "," in parts.netloc.rpartition("@")[2]
    if has_host_list or parts.netloc.count("@") > 1 or not query.keys() <= _OTHER_PARAMETERS | {"host"}:
        return False
    # A host in the query can be a folder of sockets, too.
    hosts = query["host"].split(",") if "host" in query else []
    if host is None and not hosts:
        return not any(os.environ.get(name) for name in _PLACE_VARIABLES)
    return (host is None or is_loopback(host)) and all(place.startswith("/") or is_loopback(place) for place in hosts)


def _no_entry(pointer: str, detail: str) -> InvalidInput:
    return InvalidInput(Problem(pointer, "not_in_directory", detail, "name somebody of the directory"))
