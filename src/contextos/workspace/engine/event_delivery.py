"""`EventDelivery`: delivers events to the subscribers of this process, each in an asyncio task of its own.

A subscriber that waits, fails or cannot reach the store holds up no other. A delivery that failed is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from contextos.errors import ContextOSError, InvalidInput, Problem
from contextos.telemetry.logs import error_fields

if TYPE_CHECKING:
    from contextos.service.outbox.sending import Outbox
    from contextos.service.subscriptions import Subscriber

FAULT_PAUSE_S: Final = 1.0
_LOG: Final = logging.getLogger("contextos.workspace.engine")


class EventDelivery:
    """The subscribers of this process. All methods but `close` belong to one event loop."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], tuple[Subscriber | Outbox, asyncio.Task[None]]] = {}

    async def begin(self, subscriber: Subscriber | Outbox) -> None:
        """Register a subscriber and deliver to it until `stop`.

        Raises:
            InvalidInput: this process has a subscriber of this name, or the name is used for other events.
            NotFound: the directory has no such tenant.
            Unavailable: the store or the directory does not answer; nothing is delivered.
        """
        key = (subscriber.tenant_id, subscriber.name)
        if key in self._tasks:
            detail = f"this process has a subscriber `{subscriber.name}`"
            raise InvalidInput(Problem("/name", "name_taken", detail, "use another name, or one handler for both"))
        await subscriber.register()
        self._tasks[key] = (subscriber, asyncio.ensure_future(_deliver_forever(subscriber)))

    async def stop(self) -> None:
        """Stop delivering: cancel the handlers that run, and let other processes go on at once."""
        stopped = list(self._tasks.values())
        self.close()
        await asyncio.gather(*(task for _, task in stopped), return_exceptions=True)
        for subscriber, _ in stopped:
            # If this message is lost, another process waits until the lease expires.
            with suppress(ContextOSError):
                await subscriber.release()

    def close(self) -> None:
        """Stop delivering. Another process waits for the lease, unless this one is known to be gone."""
        for _, task in self._tasks.values():
            # Its loop can be closed, and with it the task.
            with suppress(RuntimeError):
                task.cancel()
        self._tasks.clear()


async def _deliver_forever(subscriber: Subscriber | Outbox) -> None:
    while True:
        (result,) = await asyncio.gather(subscriber.deliver(), return_exceptions=True)
        if isinstance(result, BaseException):
            fields = {"tenant": subscriber.tenant_id, "subscriber": subscriber.name}
            _LOG.error("delivery failed", extra=fields | error_fields(result))
            await asyncio.sleep(FAULT_PAUSE_S)
        else:
            await asyncio.sleep(result / 1e6)
