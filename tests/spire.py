"""A SPIFFE trust domain: keys in the format of its bundle, and JWT-SVIDs of its workloads, also wrong ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

from tests.issuer import NOW_S, segment

DOMAIN = "contextos"
AUDIENCE = "https://contextos.acme.example"
WORKLOAD = "spiffe://contextos/agents/support"
USES = {
    "svid-1": "jwt-svid",
    "svid-rsa": "jwt-svid",
    "x509-1": "x509-svid",
    "sig-1": "sig",
    "plain-1": None,
    "other-1": "jwt-svid",
}
"""What the keys are for; no JWT library knows the uses of SPIFFE."""


@cache
def domain_keys() -> dict[str, Any]:
    rsa = RSAKey.generate_key(2048, {"kid": "svid-rsa"})
    return {kid: rsa if kid == "svid-rsa" else ECKey.generate_key("P-256", {"kid": kid}) for kid in USES}


def bundle(*kids: str) -> dict[str, Any]:
    """The bundle of the domain; `other-1` is a key of another one."""
    named = kids or ("svid-1", "svid-rsa", "x509-1", "sig-1", "plain-1")
    return {
        "keys": [
            {**domain_keys()[kid].as_dict(private=False), **({"use": use} if (use := USES[kid]) else {})}
            for kid in named
        ],
        "spiffe_sequence": 7,
        "spiffe_refresh_hint": 300,
    }


def svid(kid: str = "svid-1", alg: str = "ES256", header: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """A JWT-SVID signed with the key `kid`. A change to None leaves a claim or a member of the header out."""
    head = {"alg": alg, "kid": kid, "typ": "JWT", **(header or {})}
    made = {"sub": WORKLOAD, "aud": [AUDIENCE], "exp": NOW_S + 300, **changes}
    said = ".".join(
        segment(json.dumps({name: value for name, value in part.items() if value is not None}).encode())
        for part in (head, made)
    )
    signature = jws.JWSRegistry.algorithms[alg].sign(said.encode(), domain_keys()[kid])  # type: ignore[attr-defined]
    return f"{said}.{segment(signature)}"
