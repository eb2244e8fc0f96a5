"""Reads the bytes of an Open Agent Spec document as a JSON value: JSON, or YAML as pyagentspec writes it.

YAML is read as an author's (`contracts.encoding.yaml_text`): without aliases, because a few lines of them can expand to
gigabytes, and without scalars that mean two things. The result passes the same size limits and checks as JSON.
"""

from __future__ import annotations

import json
from typing import Any

from contextos.contracts.encoding.codec import MAX_BYTES, MAX_DEPTH, MAX_NODES, JsonValue, loads
from contextos.contracts.encoding.yaml_text import malformed, read_yaml
from contextos.errors import Problem


def read_document(raw: bytes) -> JsonValue:
    """Read the bytes of an agent document. If they begin with a brace or a bracket they are JSON, otherwise YAML.

    Raises:
        MalformedJson: the bytes are neither JSON nor YAML, or exceed a size limit.
    """
    if raw.lstrip()[:1] in (b"{", b"["):
        return loads(raw)
    return loads(_as_json(raw))


def exceeded_size_limit(value: Any) -> Problem | None:
    """Return a problem for the first size limit that `value` exceeds, or None. A value that contains itself exceeds
    one.
    """
    waiting, count = [(value, 1)], 0
    while waiting:
        one, depth = waiting.pop()
        count += 1
        if depth > MAX_DEPTH + 1:
            return Problem("", "too_deep", f"the document is nested deeper than {MAX_DEPTH} levels", "flatten it")
        if count > MAX_NODES:
            return Problem("", "too_many_nodes", f"the document has more than {MAX_NODES} values", "send less")
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        waiting += [(below, depth + 1) for below in inside]
    return None


def _as_json(raw: bytes) -> str:
    if len(raw) > MAX_BYTES:
        raise malformed("too_large", f"the document is larger than {MAX_BYTES} bytes", "send less")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise malformed("not_utf8", f"byte {error.start} is not UTF-8", "encode the text as UTF-8") from None
    return json.dumps(read_yaml(text, max_depth=MAX_DEPTH, max_nodes=MAX_NODES))
