"""Secrets of many shapes, made when a test runs, so that no file of this repository has one in it."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

_ALNUM, _URL, _HEX = (
    string.ascii_letters + string.digits,
    string.ascii_letters + string.digits + "-_",
    "0123456789abcdef",
)


class Planted(NamedTuple):
    """A text as somebody would send it, and what of it is secret."""

    text: str
    secret: str


@cache
def planted() -> dict[str, Planted]:
    """The secrets by the name of their shape. The same in one process."""
    chance = random.Random(20_261_125)

    def take(count: int, of: str = _ALNUM) -> str:
        # The first four show that a value is no word: both cases and two digits.
        return "aB" + "".join(chance.choices("23456789", k=2)) + "".join(chance.choices(of, k=count - 4))

    def alone(*parts: str) -> Planted:
        return Planted("".join(parts), "".join(parts))

    def behind(label: str, secret: str, end: str = "") -> Planted:
        return Planted(f"{label}{secret}{end}", secret)

    def key(private: Ed25519PrivateKey | object, form: PrivateFormat) -> str:
        pem = private.private_bytes(Encoding.PEM, form, NoEncryption())  # type: ignore[attr-defined]
        return str(pem.decode())

    def body(pem: str) -> str:
        return pem.splitlines()[1]

    pkcs8 = key(Ed25519PrivateKey.generate(), PrivateFormat.PKCS8)
    openssh = key(Ed25519PrivateKey.generate(), PrivateFormat.OpenSSH)
    sec1 = key(generate_private_key(SECP256R1()), PrivateFormat.TraditionalOpenSSL)
    bare = generate_private_key(SECP256R1()).private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    claims = [
        base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=")
        for one in ({"alg": "RS256"}, {"sub": "1234567890"})
    ]
    basic = base64.b64encode(f"robot:{take(12)}".encode()).decode()
    signature = quote(base64.b64encode(chance.randbytes(32)).decode(), safe="")
    azure = base64.b64encode(chance.randbytes(64)).decode()
    return {
        "aws access key": alone("AKI", "A", *chance.choices(string.ascii_uppercase + "234567", k=16)),
        "aws secret key": behind("aws_secret_access_key = ", take(38) + "/+"),
        "github classic": alone("gh", "p_", take(36)),
        "github fine-grained": alone("github", "_pat_", take(22), "_", take(59)),
        "gitlab": alone("glp", "at-", take(20, _URL)),
        "slack bot": alone("xo", "xb-", "123456789012-", take(24)),
        "slack webhook": behind("https://hooks.slack.com/services/", f"T0{take(8)}/B0{take(8)}/{take(24)}"),
        "stripe": alone("sk", "_live_", take(24)),
        "google api key": alone("AI", "za", take(35, _URL)),
        "google access token": alone("ya", "29.", take(60, _URL)),
        "jwt": alone(".".join(claims), ".", take(43, _URL)),
        "pem private key": Planted(sec1, body(sec1)),
        "pkcs8 block": Planted(pkcs8, body(pkcs8)),
        "pkcs8 without armour": alone(base64.b64encode(bare).decode()),
        "ssh private key": Planted(openssh, body(openssh)),
        "password in a url": behind("https://deploy:", take(14), "@git.example/repo.git"),
        "database dsn": behind("postgres://app:", take(9) + "@" + take(5), "@db.internal:5432/main"),
        "database words": behind("host=db.internal user=app password=", take(11), " dbname=main"),
        "redis url": behind("redis://:", take(16), "@cache.internal:6379/0"),
        "bearer header": behind("Authorization: Bearer ", take(40, _URL)),
        "basic header": behind("Authorization: Basic ", basic),
        "npm": alone("np", "m_", take(36)),
        "pypi": alone("py", "pi-", "AgEIcHlwaS5vcmc", take(80, _URL)),
        "azure connection": behind(
            "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=", azure, ";EndpointSuffix=core.windows.net"
        ),
        "azure sas": behind("https://shop.blob.core.windows.net/a?sv=2024-11-04&sig=", signature, "&se=2026"),
        "aws url": behind(
            "https://shop.s3.amazonaws.com/a?X-Amz-Signature=", "".join(chance.choices(_HEX, k=64)), "&x-id=GetObject"
        ),
        "google url": behind(
            "https://storage.googleapis.com/a/b?X-Goog-Signature=", "".join(chance.choices(_HEX, k=512))
        ),
        "database words in a file": behind("DB_PASS=", take(11), " DB_PORT=5432"),
        "twilio": alone("S", "K", *chance.choices(_HEX, k=32)),
        "sendgrid": alone("S", "G.", take(22, _URL), ".", take(43, _URL)),
        "labelled hex": behind("secret=", "".join(chance.choices(_HEX, k=64))),
        "labelled in json": behind('{"client_secret": "', take(32), '"}'),
        "openai": alone("sk", "-proj-", take(48, _URL)),
        "openai, older": alone("sk", "-", take(48)),
        "anthropic": alone("sk", "-ant-api03-", take(90, _URL)),
        "hugging face": alone("h", "f_", take(34, string.ascii_letters)),
        "vault": alone("hv", "s.", take(24)),
        "digitalocean": alone("dop", "_v1_", *chance.choices(_HEX, k=64)),
        "age": alone("AGE-SECRET", "-KEY-1", *chance.choices("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", k=58)),
    }  # fmt: skip


def forms(secret: str) -> Iterator[str]:
    """A secret as it could be on record: itself, backwards, escaped, in hex, and within a text in Base64."""
    raw = secret.encode()
    yield from (secret, secret[::-1], quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1])
    yield from (raw.hex(), raw.hex().upper())
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw).decode()[4:-4]
        yield from (encoded, encoded.replace("+", "-").replace("/", "_"))
