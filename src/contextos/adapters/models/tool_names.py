"""Maps names of tools to names that a provider takes, and back: no provider allows the dot of `crm.read_order`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from contextos.contracts.ports.models import ModelCall

MAX_TOOL_NAME_CHARS: Final = 64
_ALLOWED: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


class ToolNames:
    """The tools of one call, also tools that only its conversation names. Each has another sent name.

    >>> names = ToolNames(["crm.read_order", "crm_read_order"])
    >>> names.sent("crm.read_order"), names.own("crm_read_order_2"), names.own("delete_all")
    ('crm_read_order_2', 'crm.read_order', 'delete_all')
    """

    def __init__(self, tools: Iterable[str]) -> None:
        ordered = list(dict.fromkeys(tools))
        self._sent = {name: name for name in ordered if _ALLOWED.fullmatch(name)}
        taken = set(self._sent)
        for name in ordered:
            if name in self._sent:
                continue
            spelled = base = _OTHER.sub("_", name)[:MAX_TOOL_NAME_CHARS] or "tool"
            number = 1
            while spelled in taken:
                number += 1
                suffix = f"_{number}"
                spelled = base[: MAX_TOOL_NAME_CHARS - len(suffix)] + suffix
            self._sent[name] = spelled
            taken.add(spelled)
        self._own = {spelled: name for name, spelled in self._sent.items()}

    @classmethod
    def of(cls, call: ModelCall, *more: str) -> ToolNames:
        """Return the names of the tools that a call offers, or that its messages have called, and of `more`."""
        called = (proposed.tool for message in call.messages for proposed in message.calls)
        return cls([*(tool.name for tool in call.tools), *called, *more])

    def sent(self, name: str) -> str:
        """Return the name that the provider gets."""
        return self._sent[name]

    def own(self, spelled: str) -> str:
        """Return the tool's own name for a name from the provider. A name that was not sent is returned unchanged."""
        return self._own.get(spelled, spelled)
