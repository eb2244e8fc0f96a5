"""`SchemaDocument`: the JSON value in which schemas of a foreign server refer to each other."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.errors import InvalidInput, Problem


class SchemaDocument:
    """A document with schemas. `root` is its JSON value. `is_3_0`: its schemas are in the dialect of OpenAPI 3.0.

    `sends_null`: an argument whose default is null is sent as null, and not left out.
    """

    def __init__(self, root: dict[str, Any], *, is_3_0: bool = False, sends_null: bool = True) -> None:
        self.root, self.is_3_0, self.sends_null = root, is_3_0, sends_null
        document_id = root.get("$id", root.get("id"))
        self._id = document_id.rstrip("#") if isinstance(document_id, str) else ""

    def at(self, reference: str) -> Any:
        """Return the value that a reference leads to.

        Raises:
            InvalidInput: the reference leads out of the document, to nothing, or in a circle.
        """
        fragment = reference.removeprefix(self._id)
        if not fragment.startswith("#"):
            detail = f"`{reference[:80]!a}` leads out of the document"
            raise InvalidInput(Problem("", "remote_reference", detail, "put what it means into the document"))
        value = resolve_pointer(self.root, unquote(fragment[1:]))
        if value is MISSING:
            detail = f"`{reference[:80]!a}` leads to nothing"
            raise InvalidInput(Problem("", "dangling_reference", detail, "correct the reference"))
        return value
