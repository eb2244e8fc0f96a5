"""`Caller`: who sent a request over the network, as a verified token says, and what a request of theirs can state.

A body grants nothing: where it states another tenant, user, agent or delegation than the token proves, it is refused.
The runtime compares the result with the directory as it does for every request. `workspace.logins.bearer` verifies
tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from contextos.errors import InvalidInput, Problem
from contextos.trust.identity.oidc import VerifiedToken


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: a person (`user`), or the workload of agents (`workload`).

    `subject` is the id of the user in the directory, or the SPIFFE id of the workload. `issuer` vouches for it: the
    `iss` of the token, or the trust domain. `agent_ids` are the only agents as which the caller can act; None: a user
    can name any agent of the tenant. `roles` and `scopes` come from the token, as the settings map them; a workload has
    none. `delegation` is the delegation that the token itself names. `expires_at` is Unix time in seconds;
    `token_digest` is for records.
    """

    kind: Literal["user", "workload"]
    tenant_id: str
    subject: str
    issuer: str
    agent_ids: tuple[str, ...] | None
    roles: tuple[str, ...]
    scopes: tuple[str, ...]
    expires_at: int
    token_digest: str
    delegation: str | None = None
    verified: VerifiedToken | None = field(default=None, repr=False, compare=False)

    def is_behind(self, user_id: str, agent_id: str) -> bool:
        """Return whether a run of this user and agent is the caller's own."""
        if self.kind == "workload":
            return self.agent_ids is not None and agent_id in self.agent_ids
        return user_id == self.subject and (self.agent_ids is None or agent_id in self.agent_ids)

    def agent_named(self, stated: str | None) -> str:
        """Return the agent as which the caller acts: the stated agent, or the only agent that is possible.

        Raises:
            InvalidInput: the caller cannot act as this agent, or no agent is stated and not exactly one is possible.
        """
        if stated is None:
            if self.agent_ids is not None and len(self.agent_ids) == 1:
                return self.agent_ids[0]
            raise _refusal("/agent/agent_id", "the token does not name one agent", "state `agent_id`")
        if self.agent_ids is not None and stated not in self.agent_ids:
            raise _refusal("/agent/agent_id", "the token does not name this agent", "state another, or leave it out")
        return stated

    def user_named(self, stated: str | None) -> str:
        """Return the user for whom the caller acts: a person acts for themselves alone.

        Raises:
            InvalidInput: another user is stated, or a workload states none.
        """
        if self.kind == "workload":
            if stated is None:
                raise _refusal("/user/user_id", "a workload acts for a user", "state `user_id` and their delegation")
            return stated
        if stated not in (None, self.subject):
            raise _refusal("/user/user_id", "the token is not one of this user", "state your own, or leave it out")
        return self.subject


@dataclass(frozen=True, slots=True)
class Acting:
    """For whom a request is made: the ids of user and agent, and the reference of the delegation between both, as
    `App.gate` takes them (`user`, `agent`, `token`). `workload_identity` is the workload that a token proved.
    """

    user: str
    agent: str
    token: str | None
    workload_identity: str | None = None


def stated_identity(body: Any) -> tuple[str | None, str | None, bool, str | None]:
    """Return what the body of an `InvokeRequest` states: the user, the agent, whether the user delegates, and the
    reference of that delegation.

    Raises:
        InvalidInput: a part is of a wrong type.
    """
    if not isinstance(body, Mapping):
        raise InvalidInput(Problem("", "not_an_object", "the request is no JSON object", "send an `InvokeRequest`"))
    user, agent = _object(body, "user"), _object(body, "agent")
    delegation = _object(user, "delegation", "/user") if user.get("delegation") is not None else None
    reference = _text(delegation, "token_ref", "/user/delegation") if delegation is not None else None
    return (_text(user, "user_id", "/user"), _text(agent, "agent_id", "/agent"), delegation is not None, reference)


def identified_request(body: Mapping[str, Any], caller: Caller, acting: Acting) -> dict[str, Any]:
    """Return the body of an `InvokeRequest` with the identities that the caller's token proves.

    What the body leaves out is filled in. A delegation is filled in only where the body has one, because an agent acts
    for a user only if it is asked to.

    Raises:
        InvalidInput: the body states another tenant, workload or delegation than the token proves.
    """
    if body.get("tenant_id", caller.tenant_id) != caller.tenant_id:
        raise _refusal("/tenant_id", "the token is not one of this tenant", "leave it out")
    user = {**_object(body, "user"), "user_id": acting.user}
    if user.get("delegation") is not None:
        user["delegation"] = {**_object(user, "delegation", "/user"), "token_ref": acting.token}
    agent = {**_object(body, "agent"), "agent_id": acting.agent}
    if acting.workload_identity is not None:
        if agent.get("workload_identity", acting.workload_identity) != acting.workload_identity:
            raise _refusal("/agent/workload_identity", "the token is not one of this workload", "leave it out")
        agent["workload_identity"] = acting.workload_identity
    return {**body, "tenant_id": caller.tenant_id, "user": user, "agent": agent}


def _object(body: Mapping[str, Any], name: str, parent: str = "") -> Mapping[str, Any]:
    value = body.get(name, {})
    if not isinstance(value, Mapping):
        raise InvalidInput(Problem(f"{parent}/{name}", "not_an_object", "this is no JSON object", "send an object"))
    return value


def _text(body: Mapping[str, Any], name: str, parent: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        remedy = "send a text, or leave it out"
        raise InvalidInput(Problem(f"{parent}/{name}", "not_a_text", "this is not a text", remedy))
    return value


def _refusal(pointer: str, detail: str, remedy: str) -> InvalidInput:
    return InvalidInput(Problem(pointer, "identity_refused", detail, remedy))
