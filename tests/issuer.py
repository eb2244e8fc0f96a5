"""A real OIDC issuer on the loopback: it serves its JWK Set over HTTP and signs tokens, also wrong ones."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey

from contextos.trust.identity.oidc import TrustedIssuer
from tests.loopback import Answer, Asked, serving

ISSUER = "https://login.acme.example"
AUDIENCE = "contextos"
NOW_S = 1_793_000_000


def segment(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@cache
def keys() -> dict[str, Any]:
    """The issuer's private keys by key id, and two (`-x`) of somebody else; made once: RSA keys take a while."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)
        weak = RSAKey.generate_key(1024, {"kid": "weak"})
    return {
        "rsa-1": RSAKey.generate_key(2048, {"kid": "rsa-1", "use": "sig"}),
        "rsa-2": RSAKey.generate_key(2048, {"kid": "rsa-2", "use": "sig"}),
        "ec-1": ECKey.generate_key("P-256", {"kid": "ec-1", "use": "sig", "alg": "ES256"}),
        "ec-2": ECKey.generate_key("P-256", {"kid": "ec-2", "use": "sig"}),
        "ed-1": OKPKey.generate_key("Ed25519", {"kid": "ed-1"}),
        "ec-x": ECKey.generate_key("P-256", {"kid": "ec-x"}),
        "ed-x": OKPKey.generate_key("Ed25519", {"kid": "ed-x"}),
        "weak": weak,
        "enc": RSAKey.generate_key(2048, {"kid": "enc", "use": "enc"}),
    }


def jwks() -> dict[str, Any]:
    return {"keys": [key.as_dict(private=False) for kid, key in keys().items() if not kid.endswith("-x")]}


def claims(**changes: Any) -> dict[str, Any]:
    """Claims of a person who logged in ten seconds before `NOW_S`. A change to None leaves the claim out."""
    made = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "user_9041",
        "iat": NOW_S - 5,
        "exp": NOW_S + 300,
        "auth_time": NOW_S - 10,
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}


def token(kid: str = "ec-1", alg: str = "ES256", header: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """A token signed with the key `kid`; `header` replaces members of the header after the choice of the key."""
    head = {"alg": alg, "kid": kid, "typ": "JWT", **(header or {})}
    head = {name: value for name, value in head.items() if value is not None}
    return signed(head, json.dumps(claims(**changes)).encode(), kid, alg)


def signed(head: Mapping[str, Any], payload: bytes, kid: str = "ec-1", alg: str = "ES256") -> str:
    """Sign whatever header and payload; a JWT library would refuse some of them."""
    said = f"{segment(dict(head))}.{segment(payload)}"
    signature = jws.JWSRegistry.algorithms[alg].sign(said.encode(), keys()[kid])  # type: ignore[attr-defined]
    return f"{said}.{segment(signature)}"


def mac_with(secret: bytes, kid: str = "rsa-1") -> str:
    """A token with `HS256` over a secret that anybody knows, such as the text of a public key."""
    said = f"{segment({'alg': 'HS256', 'kid': kid, 'typ': 'JWT'})}.{segment(claims())}"
    return f"{said}.{segment(hmac.digest(secret, said.encode(), 'sha256'))}"


TRUSTED = TrustedIssuer(ISSUER, AUDIENCE, algorithms=("RS256", "PS256", "ES256", "Ed25519", "EdDSA"))


@dataclass
class Issuer:
    """`url` is its JWK Set. `answer` can be replaced by a test; `requests` counts."""

    url: str = ""
    requests: int = 0
    answer: Callable[[], Answer] = lambda: (200, json.dumps(jwks()).encode(), {})
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def issuer() -> Iterator[Issuer]:
    made = Issuer()

    def answer(_asked: Asked) -> Answer:
        with made.lock:
            made.requests += 1
        return made.answer()

    with serving(answer) as url:
        made.url = f"{url}/jwks.json"
        yield made
