"""Tokens of the development issuer: the runtime itself says who calls, for people who try it out on one machine.

A token is a compact JWS, signed with the runtime's key for claims. Its `typ` differs from that of a claim, so neither
is accepted as the other. A token proves that its holder can read the keys of the workspace, and nothing about a person.
A deployment accepts these tokens only where `workspace.logins.bearer` says so: in development, on the loopback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.encoding.jcs import digest
from contextos.contracts.ports.outside import Keys
from contextos.errors import InvalidSettings, Problem, SignatureInvalid
from contextos.trust.identity.claims import open_token, sign_token

DEVELOPMENT_TYPE: Final = "ctxdev+jwt"
DEVELOPMENT_ISSUER: Final = "contextos-development"
MAX_DEVELOPMENT_TTL_S: Final = 43_200


@dataclass(frozen=True, slots=True)
class DevelopmentToken:
    """The identity that a token of the development issuer names: a user, an agent, or a user who delegates to an agent.

    `delegation` is the directory's reference of the delegation from the user to the agent. `expires_at` is Unix time in
    seconds. `token_digest` is for records.
    """

    tenant_id: str
    user_id: str | None
    agent_id: str | None
    delegation: str | None
    roles: tuple[str, ...]
    scopes: tuple[str, ...]
    expires_at: int
    token_digest: str = ""


def mint_development_token(
    keys: Keys,
    *,
    tenant_id: str,
    user_id: str | None,
    agent_id: str | None,
    delegation: str | None,
    roles: Sequence[str],
    scopes: Sequence[str],
    now_us: int,
    ttl_s: int,
) -> str:
    """Sign a token for a user, an agent or both, valid for `ttl_s` seconds from `now_us` (Unix microseconds).

    Raises:
        InvalidSettings: `ttl_s` is outside 1 to 43200, or there is no key to sign claims with.
    """
    assert user_id or agent_id, "it names somebody"
    if not 1 <= ttl_s <= MAX_DEVELOPMENT_TTL_S:
        detail = f"the lifetime of a token must be 1 to {MAX_DEVELOPMENT_TTL_S} s, not `{ttl_s}`"
        raise InvalidSettings(Problem("/ttl", "out_of_bounds", detail, "ask for a shorter time"))
    issued_s = now_us // 1_000_000
    body: dict[str, Any] = {
        "iss": DEVELOPMENT_ISSUER,
        "aud": DEVELOPMENT_ISSUER,
        "tenant_id": tenant_id,
        "user_id": user_id,
        "agent_id": agent_id,
        "delegation": delegation,
        "roles": sorted(roles),
        "scopes": sorted(scopes),
        "iat": issued_s,
        "exp": issued_s + ttl_s,
    }
    return sign_token(keys, DEVELOPMENT_TYPE, body)


def verify_development_token(token: str, keys: Keys, *, now_us: int) -> DevelopmentToken:
    """Verify a token that this runtime minted and that is valid at `now_us` (Unix µs); return the identity in it.

    Raises:
        SignatureInvalid: the token has another form, issuer or signature, is not valid now, or names neither a user nor
            an agent.
    """
    opened = open_token(token, keys, DEVELOPMENT_TYPE)
    body = opened.body
    opened.refuse_retired(keys, _time_claim(body, "iat") * 1_000_000)
    if (body.get("iss"), body.get("aud"), body.get("kid")) != (DEVELOPMENT_ISSUER, DEVELOPMENT_ISSUER, opened.kid):
        raise SignatureInvalid("the token is not one of the development issuer")
    if not _time_claim(body, "iat") * 1_000_000 <= now_us < _time_claim(body, "exp") * 1_000_000:
        raise SignatureInvalid("the token is not valid now; ask for a new one with `contextos token`")
    ids = [body.get(name) for name in ("user_id", "agent_id", "delegation")]
    if not any(ids[:2]) or not all(value is None or isinstance(value, str) for value in ids):
        raise SignatureInvalid("the token names nobody")
    return DevelopmentToken(
        tenant_id=str(body.get("tenant_id")),
        user_id=ids[0],
        agent_id=ids[1],
        delegation=ids[2],
        roles=_text_list(body, "roles"),
        scopes=_text_list(body, "scopes"),
        expires_at=_time_claim(body, "exp"),
        token_digest=digest(token.encode()),
    )


def _time_claim(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    if type(value) is not int:
        raise SignatureInvalid(f"the token states no time in `{name}`")
    return value


def _text_list(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = body.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise SignatureInvalid(f"the token has no list in `{name}`")
    return tuple(value)
