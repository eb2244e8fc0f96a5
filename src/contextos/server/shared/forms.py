"""Forms of texts that the code checks after the model of a body. The OpenAPI document states the same bounds."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Header
from pydantic import Field

from contextos.contracts.model import MAX_NAME_CHARS
from contextos.contracts.ports.gates import MAX_CALL_ID_CHARS, MAX_TOOL_CHARS

ID_PATTERN: Final = r"^[^\u0000-\u001f]*$"

KnownId = Annotated[str, Field(json_schema_extra={"maxLength": MAX_NAME_CHARS, "pattern": ID_PATTERN})]
CallId = Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": MAX_CALL_ID_CHARS})]
ToolId = Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": MAX_TOOL_CHARS})]
_CHARACTER: Final = r'(?:[ !#-\[\]-~]|\\["\\])'
STRUCTURED_STRING: Final = re.compile(
    rf'"({_CHARACTER}+)"(?: *; *[a-z*][a-z0-9_.*-]*(?:=(?:"{_CHARACTER}*"|[!#-+\--:=?-Z^-z|~]+))?)*'
)
"""A non-empty string of RFC 8941 (section 3.3.3), whose content is group 1. Its parameters are ignored."""

RequestKey = Annotated[
    str | None, Header(max_length=160, json_schema_extra={"pattern": f"^{STRUCTURED_STRING.pattern}$"})
]
