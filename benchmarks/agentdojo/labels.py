"""The labels of a tool, derived from its name, its description and its schema by one rule. No tool has an entry here.

1. Kind. A tool whose name begins with a verb of `READS` reads. Every other tool writes, and its effect is irreversible.
2. Integrity. What a tool answers is untrusted. Trusted is the answer of a read that takes no argument and answers a
   number, or whose description says that it is about the `OWN` account.
3. Destinations. Every argument of a write is one, as the runtime takes it. Of a read it is each argument whose name or
   description has a word of `OUTWARD`.
4. Secrets. An argument of a write whose name has a word of `SECRETS`.
5. Texts. An argument whose name has a word of `TEXTS` is a text for people. Each other one is a value that decides
   something. The runtime asks about both; the person reads them differently (`people`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

READS: Final = frozenset(["check", "count", "fetch", "find", "get", "list", "read", "search", "show", "view"])
OWN: Final = frozenset({"current", "user"})
OUTWARD: Final = frozenset(["domain", "endpoint", "host", "link", "uri", "url", "webpage", "website"])
SECRETS: Final = frozenset(["passphrase", "password", "pin", "secret", "token"])
TEXTS: Final = frozenset(["body", "comment", "content", "description", "message", "note", "subject", "text", "title"])


def labels_of(name: str, description: str, parameters: Mapping[str, Any], returned: Any) -> dict[str, Any]:
    """Return the labels of a tool. `returned` is the type of its answer."""
    arguments = parameters.get("properties", {})
    if not is_read(name):
        secrets = [one for one in arguments if SECRETS & _words(one)]
        return {
            "kind": "write",
            "risk_level": "write_irreversible",
            "approval_mode": "destructive",
            "output_integrity": "untrusted",
            "secrets": secrets,
        }
    trusted = not arguments and (returned in (int, float, bool) or OWN & _words(description))
    return {
        "kind": "read",
        "risk_level": "read",
        "approval_mode": "read_only",
        "output_integrity": "trusted" if trusted else "untrusted",
        "destinations": [
            one for one, schema in arguments.items() if OUTWARD & _words(f"{one} {schema.get('description', '')}")
        ],
    }


def is_read(name: str) -> bool:
    return name.split("_")[0] in READS


def is_text(argument: str) -> bool:
    return bool(TEXTS & _words(argument))


def _words(text: str) -> set[str]:
    return set(re.findall("[a-z]+", text.lower()))
