"""`Quarantine`: the capabilities of a foreign server whose definition is not the published one.

Such a capability gets no call. The reply is the business error `definition_drift`, which means that nothing happened.
It holds no text of the server.
"""

from __future__ import annotations

import logging
from typing import Final

from contextos.contracts.envelopes.tool import AdapterReply, ToolError

_LOG: Final = logging.getLogger("contextos.adapters")


class Quarantine:
    """The capabilities of one adapter that were found changed. It lasts until the process ends.

    `kind` is the kind of the adapter file.
    """

    def __init__(self, adapter_id: str, kind: str) -> None:
        self._adapter_id, self._kind = adapter_id, kind
        self._names: set[str] = set()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._names)

    def __contains__(self, capability: str) -> bool:
        return capability in self._names

    def add(self, capability: str) -> None:
        """Quarantine a capability, and log that once."""
        if capability not in self._names:
            self._names.add(capability)
            fields = {"capability": f"{self._adapter_id}.{capability}"}
            _LOG.warning("capability quarantined: its definition changed", extra=fields)

    def reply(self, capability: str) -> AdapterReply:
        """Return the business error that a call of the capability ends with."""
        name = f"{self._adapter_id}.{capability}"
        error = ToolError(
            code="definition_drift",
            message=f"the server does not list `{name}` as it was published; nothing was sent",
            remedy=f"draft the adapter again with `contextos adapters add {self._kind}`, review the change, and "
            "publish it",
        )
        return AdapterReply(error=error, cost_cents=0)
