"""The shapes of secrets: texts that look like a key, a token or a password, from any source.

A shape is a prefix that its issuer chose so that scanners find it, or a word such as `client_secret` beside a value. A
word proves little, so its value is looked at too: a word of a language or a reference is not a secret. Patterns run on
RE2, in time linear in the length of the text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

SECRET_MARK: Final = "[redacted:secret]"

# Repetitions are unbounded where they can be: RE2 stays linear, and counts make its tables large.
SECRET_SHAPES: Final[Mapping[str, str]] = {
    "private key": (
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-[^-])*"
        r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?"
    ),
    "PKCS #8, RSA": r"\bMI[A-Za-z0-9+/]{4,6}IBADANBgkqhkiG9w0BAQEFAASC[A-Za-z0-9+/=\r\n]*",
    "PKCS #8, elliptic curve": r"\bM[A-Za-z0-9+/]{3,5}AgEAMB[A-Za-z0-9+/]{2}Byq?GSM49[A-Za-z0-9+/=\r\n]*",
    "PKCS #8, Ed25519": r"\bMC4CAQAwBQYDK2V[A-Za-z0-9+/=\r\n]*",
    "age": r"(?i:\bAGE-SECRET-KEY-1)[A-Za-z0-9]+",
    "AWS": r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b",
    "JSON Web Token": r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    "GitHub": r"\bgh[pousr]_[A-Za-z0-9]{30,}",
    "GitHub, fine-grained": r"\bgithub_pat_[A-Za-z0-9_]{22,}",
    "GitLab": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "Slack": r"\bx(?:ox[abeprs]|app)-[A-Za-z0-9-]{10,}",
    "Slack webhook": r"\bhooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/]{20,}",
    "Stripe": r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "Stripe webhook": r"\bwhsec_[A-Za-z0-9+/=]{24,}",
    "OpenAI, Anthropic": r"\bsk-(?:proj|ant|svcacct|admin)-[A-Za-z0-9_-]{16,}",
    "Hugging Face": r"\bhf_[A-Za-z0-9]{30,}",
    "Google API key": r"\bAIza[A-Za-z0-9_-]{35}",
    "Google OAuth": r"\b(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,}",
    "npm": r"\bnpm_[A-Za-z0-9]{36}",
    "PyPI": r"\bpypi-AgE[A-Za-z0-9_-]{32,}",
    "SendGrid": r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,}",
    "Twilio": r"\bSK[0-9a-f]{32}\b",
    "Vault": r"\bhv[sbr]\.[A-Za-z0-9_-]{20,}",
    "DigitalOcean": r"\bdo[opr]_v1_[0-9a-f]{64}",
    "Shopify": r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    "Azure key": r"(?i:\b(?:Account|SharedAccess)Key=)[A-Za-z0-9+/]{40,}=*",
    "signature in a URL": (
        r"(?i:[?&](?:sig|signature|x-(?:amz|goog)-(?:signature|security-token))=)[A-Za-z0-9%+/_~-]{40,}=*"
    ),
    "password in a URL": r"(?i:\b[a-z][a-z0-9+.-]*)://[^\s/:@\[\",?]*:[^\s/\[\",?][^\s/\",?]*@",
}
"""Patterns of texts that are secrets, by the kind of secret."""

_LABEL: Final = (
    r"(?:secret|secret[_-]?(?:access[_-]?)?key|(?:client|app|webhook|signing|shared)[_-]?secret"
    r"|(?:api|access|account|private|signing|encryption)[_-]?key|(?:access|auth|refresh|api|bearer|session)[_-]?token)"
)
_TEXT_LABEL: Final = rf"(?:{_LABEL}|token)"
"""The words before a secret in a text. A member named only `token` can hold a choice, so only a long value counts."""
_PUBLIC_TOKEN_LABEL: Final = (
    r"(?i:(?:page|next|prev|previous|continue|continuation|sync|skip|delta|resume|start|starting|pagination|paging|cursor"
    r"|marker|idempotency)[_.-]?token)"
)
"""The ends of names whose token is not a secret: it says where a list goes on, or which request this is."""
_PASSWORD_LABEL: Final = r"(?:passw(?:or)?d|passphrase|pwd|_pass)"
_EQUALS: Final = r"""\\?["']?\s{0,2}[:=]\s{0,2}\\?["']?"""
_LABELLED: Final = rf"(?i:[A-Z0-9_.-]*{_TEXT_LABEL}){_EQUALS}[A-Za-z0-9+/_.~-]{{16,}}=*"
_PASSWORD: Final = rf"""(?i:[A-Z0-9_.-]*{_PASSWORD_LABEL}){_EQUALS}[^\s;,&"'\\\[\](){{}}<>$]{{6,}}"""
_TAG_END: Final = r"(?:\s[^<>]*)?>"
_IN_TAG: Final = rf"{_TAG_END}\s*(?:<!\[CDATA\[)?\s*"
_TAGGED: Final = rf"<(?i:[A-Z0-9_.:-]*{_TEXT_LABEL}){_IN_TAG}[A-Za-z0-9+/_.~-]{{16,}}=*"
_BASIC: Final = r"(?i:\bbasic)[ \t]{1,4}[A-Za-z0-9+/]{8,}={0,2}"
_MODEL_KEY: Final = r"\bsk-[A-Za-z0-9_-]{20,}"
"""The form of the keys of many model providers, which some names have too."""
_BEARER: Final = r"(?i:\bbearer)[ \t]{1,4}[A-Za-z0-9._~+/-]{16,}=*"
_TOKEN: Final = r"(?i:\btoken)[ \t]{1,4}[A-Za-z0-9._~+/-]{16,}=*"
_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_KEY_ID: Final = rf"(?i:[A-Z0-9_.-]*access[_-]?key){_EQUALS}{_UUID}"
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
_WORDS: Final = r"(?:[A-Z]+|[A-Z]?[a-z]+)(?:[-_.](?:[A-Z]+|[A-Z]?[a-z]+))*"
_NUMBERED_WORDS: Final = r"[A-Za-z]+[0-9]{0,3}(?:[-_][A-Za-z]+[0-9]{0,3}){2,}"
_PUBLIC_ADDRESS: Final = r"0x[0-9a-fA-F]{40}"
_MIN_TOKEN_CHARS: Final = 32
"""The fewest characters of a secret in a member `token`, and of a random value whose letters are of one case."""


def without_secrets(text: str) -> str:
    """Return the text with each part that looks like a secret replaced by a mark.

    >>> without_secrets("clone https://ana:hunter2@git.example/x")
    'clone [redacted:secret]git.example/x'
    """
    redacted = str(linear_pattern(_SHAPES).sub(SECRET_MARK, text))
    return str(linear_pattern(_CHECKED_SHAPES).sub(_mark_secret, redacted))


def shortened(text: str, max_chars: int) -> str:
    """Return the text as valid UTF-8, cut where it is too long. Its secrets are redacted first, so that none is cut in
    two.
    """
    text = text.encode(errors="replace").decode()
    return text if len(text) <= max_chars else without_secrets(text)[:max_chars]


def is_secret_member(name: str, value: str) -> bool:
    """Return whether a member of an object holds a secret: it is named like a secret, and its value looks like one.

    >>> is_secret_member("password", "hunter2"), is_secret_member("password", "required")
    (True, False)
    """
    if linear_pattern(f"(?i:{_PASSWORD_LABEL})$").search(name) is not None:
        return _is_password(value)
    if linear_pattern(f"(?i:{_TEXT_LABEL})$").search(name) is None:
        return False
    if name.lower() == "token" and len(value) < _MIN_TOKEN_CHARS:
        return False
    return linear_pattern(_LABELLED).fullmatch(f"{name}={value}") is not None and _is_labelled(f"{name}={value}")


@cache
def linear_pattern(source: str | bytes) -> Any:
    """Compile a pattern once, for text or for its UTF-8. RE2 is imported on first use because that takes 17 ms."""
    import re2  # type: ignore[import-untyped]

    return re2.compile(source)


def _mark_secret(match: Any) -> str:
    """Return the matched text, or the mark `SECRET_MARK` if its check says that it is a secret."""
    text = str(match.group())
    name = str(match.lastgroup)
    return SECRET_MARK if _CHECKS[name](text) else text


def _labelled_value(text: str) -> str:
    """Return the value in a labelled text: the part after the word."""
    return str(linear_pattern(f"^.*?(?i:{_TEXT_LABEL}|{_PASSWORD_LABEL})(?:{_EQUALS}|{_IN_TAG})").sub("", text))


def _is_random(value: str) -> bool:
    """Return whether a value is not a word, name or path: it is hexadecimal, or has both cases and a digit."""
    compact = value.replace("-", "").rstrip("=")
    if len(compact) >= 16 and not compact.strip("0123456789abcdefABCDEF"):
        return len(compact) >= 32 or not (compact.isdigit() or compact.isalpha())
    parts = value.split(".")
    if len(value) < 16 or (len(parts) > 1 and all(part.isidentifier() for part in parts)):
        return False
    if linear_pattern(_NUMBERED_WORDS).fullmatch(value) is not None:
        return False
    return any(map(str.isdigit, value)) and any(map(str.isupper, value)) and any(map(str.islower, value))


def _is_labelled(text: str) -> bool:
    """Return whether a word and its value are a secret. An access key that is a UUID is the id of something."""
    is_id = "secret" not in text.lower() and linear_pattern(_KEY_ID).fullmatch(text) is not None
    value = _labelled_value(text)
    public_token = linear_pattern(f"^<?[A-Za-z0-9_.:-]*{_PUBLIC_TOKEN_LABEL}(?:{_EQUALS}|{_TAG_END})")
    if is_id or public_token.search(text) is not None:
        return False
    if linear_pattern(f"(?i:{_LABEL})(?:{_EQUALS}|{_TAG_END})").search(text.removesuffix(value)) is not None:
        return _is_random(value)
    return (_is_random(value) or _is_of_one_case(value)) and linear_pattern(_PUBLIC_ADDRESS).fullmatch(value) is None


def _is_of_one_case(value: str) -> bool:
    """Return whether a token is long, alphanumeric and has at least four digits, as Base32 and Base36 write it."""
    digits = sum(map(str.isdigit, value))
    return len(value) >= _MIN_TOKEN_CHARS and value.isalnum() and 4 <= digits < len(value)


def _is_password(value: str) -> bool:
    """Return whether a value is more than a word: it has a digit, a letter and no blank, and is not a path or a name in
    code.
    """
    is_excluded = len(value) < 6 or value.split() != [value]
    if is_excluded or value.startswith("/") or linear_pattern(_NAME).fullmatch(value) is not None:
        return False
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _is_basic(text: str) -> bool:
    """Return whether the part after `basic` is Base64 of `user:password`."""
    encoded = text.split()[1]
    try:
        return b":" in base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except binascii.Error:
        return False


_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "labelled": _is_labelled,
    "tagged": _is_labelled,
    "password": lambda text: _is_password(_labelled_value(text)),
    "basic": _is_basic,
    "model": lambda text: any(len(part) >= 16 and any(map(str.isdigit, part)) for part in text.split("-")),
    "bearer": lambda text: linear_pattern(_WORDS).fullmatch(text.split()[1]) is None,
    "token": lambda text: _is_random(text.split()[1]),
}
_SHAPES: Final = "|".join(SECRET_SHAPES.values())
_CHECKED_SHAPES: Final = (
    f"(?P<tagged>{_TAGGED})|(?P<labelled>{_LABELLED})|(?P<password>{_PASSWORD})|(?P<basic>{_BASIC})|(?P<model>{_MODEL_KEY})"
    f"|(?P<bearer>{_BEARER})|(?P<token>{_TOKEN})"
)
SECRET_SIGN: Final = (
    f"{_SHAPES}|(?i:{_TEXT_LABEL}|{_PASSWORD_LABEL}){_EQUALS}|(?i:{_TEXT_LABEL}){_TAG_END}"
    f"|{_BASIC}|{_MODEL_KEY}|{_BEARER}|{_TOKEN}"
)
"""A pattern of the JSON of a value: where it finds nothing, no text or member of the value looks like a secret."""
