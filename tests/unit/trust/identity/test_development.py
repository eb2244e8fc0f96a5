"""What a token of the development issuer says. The attacks are in `tests/attacks/test_e35_development_tokens.py`."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.errors import InvalidSettings, SignatureInvalid
from contextos.trust.identity.claims import verify_claim
from contextos.trust.identity.development import (
    DEVELOPMENT_ISSUER,
    MAX_DEVELOPMENT_TTL_S,
    mint_development_token,
    verify_development_token,
)
from contextos.trust.seal import KeyRing

NOW_US = 1_793_000_000_500_000
RING = KeyRing.from_seed(b"k" * 32)


def minted(**changes: Any) -> str:
    says: dict[str, Any] = {
        "tenant_id": "tenant_acme",
        "user_id": "ana",
        "agent_id": None,
        "delegation": None,
        "roles": ["lead", "agent"],
        "scopes": [],
        "now_us": NOW_US,
        "ttl_s": 60,
    }
    return mint_development_token(RING, **{**says, **changes})


def test_it_says_what_it_was_made_for_until_it_ends() -> None:
    found = verify_development_token(minted(), RING, now_us=NOW_US)
    assert (found.tenant_id, found.user_id, found.agent_id, found.roles) == (
        "tenant_acme",
        "ana",
        None,
        ("agent", "lead"),
    )
    assert found.expires_at == NOW_US // 1_000_000 + 60
    with pytest.raises(SignatureInvalid, match="not valid now"):
        verify_development_token(minted(), RING, now_us=NOW_US + 60_000_000)


def test_it_lives_for_half_a_day_at_most() -> None:
    assert minted(ttl_s=MAX_DEVELOPMENT_TTL_S)
    for never in (0, -1, MAX_DEVELOPMENT_TTL_S + 1):
        with pytest.raises(InvalidSettings, match="lifetime"):
            minted(ttl_s=never)


def test_it_is_no_claim_of_a_run() -> None:
    with pytest.raises(SignatureInvalid, match="header"):
        verify_claim(minted(), RING, issuer=DEVELOPMENT_ISSUER, audience=DEVELOPMENT_ISSUER, now_us=NOW_US)
