"""A real key service on the loopback, in the shape of the cloud ones: it signs, unless a test makes it do otherwise."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from contextos.adapters.remote_keys import RemoteKeys
from contextos.trust.seal import PURPOSES
from contextos.workspace.settings.keys import RemoteKeySetting
from tests.loopback import Answer, Asked, serving

KeyAnswer = tuple[int, bytes]
Fault = Callable[[str, str], KeyAnswer | None]
"""(method, path) -> what to answer instead, or None."""
TOKEN = "token-of-the-runtime"


def private(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def pinned() -> tuple[RemoteKeySetting, ...]:
    """A key for each purpose, as the settings pin it."""
    return tuple(
        RemoteKeySetting(one, f"{one}/versions/1", private(f"{one}/versions/1").public_key().public_bytes_raw().hex())
        for one in PURPOSES
    )


def pem(name: str) -> str:
    key = private(name).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@dataclass
class KeyService:
    """`requests` as (method, path) in order; `signs_with` replaces the name of the key that signs."""

    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    fault: Fault = lambda _method, _path: None
    signs_with: Callable[[str], str] = lambda name: name
    presents: Callable[[str], str] = lambda name: name
    lock: threading.Lock = field(default_factory=threading.Lock)
    clients: list[RemoteKeys] = field(default_factory=list)

    def opened(self, **change: Any) -> RemoteKeys:
        """Keys of this service, closed with it."""
        given: dict[str, Any] = {"keys": pinned(), "token": lambda: TOKEN, "timeout_s": 5, **change}
        made = RemoteKeys(self.url, given["keys"], given["token"], timeout_s=given["timeout_s"])
        self.clients.append(made)
        return made

    def answer(self, method: str, path: str, body: bytes, token: str) -> KeyAnswer:
        with self.lock:
            self.requests.append((method, path))
        instead = self.fault(method, path)
        if instead is not None:
            return instead
        if token != f"Bearer {TOKEN}":
            return 401, b'{"error": "unauthenticated"}'
        name, _, verb = path.removeprefix("/v1/keys/").partition(":")
        if method == "GET" and name.endswith("/publicKey"):
            name = name.removesuffix("/publicKey")
            said = {"name": name, "algorithm": "EC_SIGN_ED25519", "pem": pem(self.presents(name))}
            return 200, json.dumps(said).encode()
        if method == "POST" and verb == "asymmetricSign":
            signature = private(self.signs_with(name)).sign(base64.b64decode(json.loads(body)["data"]))
            return 200, json.dumps({"name": name, "signature": base64.b64encode(signature).decode()}).encode()
        return 404, b"{}"


@contextmanager
def key_service() -> Iterator[KeyService]:
    made = KeyService()

    def answer(asked: Asked) -> Answer:
        status, said = made.answer(asked.method, asked.path, asked.body, asked.headers.get("Authorization", ""))
        return status, said, {"Location": f"{made.url}/elsewhere"} if 300 <= status < 400 else {}

    with serving(answer) as url:
        made.url = f"{url}/v1/keys"
        try:
            yield made
        finally:
            for one in made.clients:
                one.close()
