"""TLS of the server itself: its certificate and key, the addresses that need it, and the hosts that requests may name.

Other machines are served over TLS, or through a proxy that the operator declares to have TLS. The headers `Forwarded`
and `X-Forwarded-*` of a proxy are never believed.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidSettings, Problem
from contextos.files import read_private_file, read_regular_file, why
from contextos.server.edge import is_host

MAX_PEM_BYTES: Final = 1_000_000
_PEM: Final = "give the PEM files of the chain and of its private key, without a passphrase"


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of a server (1.2 or newer). `certificate` is a PEM file with the chain. `key` is a PEM
    file with the private key, without a passphrase, which only its owner can read.

    Raises:
        InvalidSettings: a file cannot be read or is not PEM, others can read the key, the key has a passphrase, or the
            key is not that of the certificate.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _check_pem(certificate, "certificate", b"BEGIN CERTIFICATE-")
    secret = _check_pem(key, "private key", b"PRIVATE KEY-")
    read_private_file(key, MAX_PEM_BYTES, "/http")
    if b"ENCRYPTED" in secret:
        detail, remedy = (
            f"`{key.name}` has a passphrase",
            "write the key without one: `openssl pkey -in FILE -out FILE`",
        )
        raise _refusal("no_certificate", detail, remedy)
    try:
        # Without a passphrase: the terminal would be asked for one.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError):
        detail = f"`{certificate.name}` and `{key.name}` are not a certificate with its key: they do not fit"
        raise _refusal("no_certificate", detail, _PEM) from None
    return context


def _check_pem(file: Path, content: str, marker: bytes) -> bytes:
    """Return the bytes of a PEM file. Raise `InvalidSettings` unless they contain `marker`."""
    try:
        text = read_regular_file(file, MAX_PEM_BYTES)
    except OSError as error:
        raise _refusal("no_certificate", f"`{file.name}` cannot be read: {why(error)}", _PEM) from None
    if marker not in text:
        raise _refusal("no_certificate", f"`{file.name}` has no {content} in PEM", _PEM)
    return text


def check_reach(is_loopback: bool, *, has_tls: bool, behind_tls_proxy: bool) -> None:
    """Check that other machines reach an address only with TLS.

    Raises:
        InvalidSettings: other machines reach the address without TLS, or `behind_tls_proxy` would change nothing.
    """
    if behind_tls_proxy and (has_tls or is_loopback):
        detail = "a proxy in front changes nothing for this machine alone, and for a server with TLS"
        raise _refusal("no_effect", detail, "leave `--behind-tls-proxy` out")
    if not is_loopback and not has_tls and not behind_tls_proxy:
        detail = "other machines can reach the address, and there is no TLS"
        remedy = "give `--tls-cert` and `--tls-key`, or say `--behind-tls-proxy`; or serve 127.0.0.1"
        raise _refusal("not_loopback", detail, remedy)


def hosts_of(stated: Sequence[str]) -> list[str]:
    """Return the hosts that requests may name, in lower case. Raises `InvalidSettings` if one is not a host."""
    if (wrong := next((host for host in stated if not is_host(host)), None)) is not None:
        detail = f"`{displayed(wrong)}` is not the host of a request"
        raise _refusal("not_a_host", detail, "write it as in a URL, such as `api.acme.example` or `127.0.0.1:8765`")
    return [host.lower() for host in stated]


def _refusal(code: str, detail: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(Problem("/http", code, detail, remedy))
