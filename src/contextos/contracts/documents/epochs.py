"""Documents about the store itself: its epoch, which a restore changes, and the database it was last seen in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from contextos.contracts.documents.collection import Collection, strict_decoder
from contextos.contracts.journal import Write

EPOCH_KEY: Final = "store"
"""The key of the one document of `EPOCHS`. While it is absent no restore was ever recorded."""

DATABASE_PLACE_KEY: Final = "place"
"""The key of the one document of `DATABASE_PLACES`."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The epoch that the last restore began: its id, when (Unix microseconds), and who recorded it."""

    id: str
    at_us: int
    by: str


@dataclass(frozen=True, slots=True)
class DatabasePlace:
    """The PostgreSQL database that a tenant's store was last seen in, and the version of its epoch at that time."""

    place: str
    epoch: int


EPOCHS: Final[Collection[Epoch]] = Collection("epoch", orjson.dumps, strict_decoder(Epoch))
"""The one document `EPOCH_KEY`."""

DATABASE_PLACES: Final[Collection[DatabasePlace]] = Collection("epoch", orjson.dumps, strict_decoder(DatabasePlace))
"""The one document `DATABASE_PLACE_KEY`, in the same collection."""


def is_epoch_write(write: Write) -> bool:
    """Whether this write begins a new epoch of the store."""
    return (write.collection, write.key) == EPOCHS.place(EPOCH_KEY) and write.body is not None
