"""URLs of services: which parts one has, and whether its host is this machine."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

_URL: Final = re.compile(r"https?://[!$->@-\[\]-~]+", re.IGNORECASE | re.ASCII)


def url_parts(text: str) -> SplitResult:
    """Return the parts of a URL over HTTP that is ASCII and has no query; for any other text, the parts of ""."""
    try:
        parts = urlsplit(text if _URL.fullmatch(text) else "")
        return parts if parts.hostname and parts.port != 0 else urlsplit("")
    except ValueError:
        return urlsplit("")


def is_loopback(host: str) -> bool:
    """Return whether a host of a URL is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_private_connection(url: str) -> bool:
    """Return whether nobody on the way to `url` can change an answer: it is encrypted, or stays on this machine."""
    parts = url_parts(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")
