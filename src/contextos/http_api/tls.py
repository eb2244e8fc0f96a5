"""TLS of the server itself: its certificate and key, and which address may be served with or without it.

Other machines are served over TLS, or through a proxy with TLS of whom the operator says so. What a proxy says about a
request in `Forwarded` or `X-Forwarded-*` is never believed.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from contextos.errors import InvalidSettings, Problem


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS of a server, 1.2 or newer. `certificate` is a PEM file with the chain, `key` one with the private
    key, without a passphrase, which only its owner can read.

    Raises:
        InvalidSettings: a file cannot be read, others can read the key, or the two do not belong together.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if key.stat().st_mode & 0o077:
            raise _refused("open_key", f"`{key.name}` can be read by others", "run `chmod 600` on it")
        # Without a passphrase: the terminal would be asked for one.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        # The error of TLS is one of the system too.
        why = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
        detail = f"`{certificate.name}` and `{key.name}` are no certificate with its key: {why or 'they do not fit'}"
        remedy = "give the PEM files of the chain and of its private key, without a passphrase"
        raise _refused("no_certificate", detail, remedy) from None
    return context


def check_reach(is_loopback: bool, *, has_tls: bool, behind_tls_proxy: bool) -> None:
    """Refuse an address that other machines reach without TLS, and a proxy that changes nothing.

    Raises:
        InvalidSettings: as this says.
    """
    if behind_tls_proxy and (has_tls or is_loopback):
        detail = "a proxy in front changes nothing for this machine alone, and for a server with TLS"
        raise _refused("no_effect", detail, "leave `--behind-tls-proxy` out")
    if not is_loopback and not has_tls and not behind_tls_proxy:
        detail = "other machines can reach the address, and there is no TLS"
        remedy = "give `--tls-cert` and `--tls-key`, or say `--behind-tls-proxy`; or serve 127.0.0.1"
        raise _refused("not_loopback", detail, remedy)


def _refused(code: str, detail: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(Problem("/http", code, detail, remedy))
