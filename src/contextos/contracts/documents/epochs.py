"""Documents about the store itself: its epoch, which changes with a restore, and the identity of its database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from contextos.contracts.documents.collection import Collection, strict_decoder
from contextos.contracts.journal import Write

EPOCH_KEY: Final = "store"
"""The key of the one document of `EPOCHS`. If it is absent, no restore was ever recorded."""

DATABASE_PLACE_KEY: Final = "place"
"""The key of the one document of `DATABASE_PLACES`."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The epoch since the last restore: its id, its begin (Unix microseconds), and the person who recorded it."""

    id: str
    at_us: int
    by: str


@dataclass(frozen=True, slots=True)
class DatabasePlace:
    """The identity of a tenant's PostgreSQL database when it was last checked, and the epoch's version at that time."""

    place: str
    epoch: int


EPOCHS: Final[Collection[Epoch]] = Collection("epoch", orjson.dumps, strict_decoder(Epoch))
"""The one document `EPOCH_KEY`."""

DATABASE_PLACES: Final[Collection[DatabasePlace]] = Collection("epoch", orjson.dumps, strict_decoder(DatabasePlace))
"""The one document `DATABASE_PLACE_KEY`, in the same collection."""


def is_epoch_write(write: Write) -> bool:
    """Whether this write begins a new epoch of the store."""
    return (write.collection, write.key) == EPOCHS.place(EPOCH_KEY) and write.body is not None
