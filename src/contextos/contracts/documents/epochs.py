"""Documents about the store itself: its epoch (the period since the last restore from a backup), its database, and what
was published of it to a witness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from contextos.contracts.documents.collection import stored
from contextos.contracts.journal import Write

EPOCH_KEY: Final = "store"
"""The key of the one document of `EPOCHS`. If it is absent, no restore was ever recorded."""

DATABASE_PLACE_KEY: Final = "place"
"""The key of the one document of `DATABASE_PLACES`."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The store's epoch, the period since a restore that can have lost something.

    `id` names the epoch (empty before the first such restore); approvals of another epoch are void. `at_us` is when the
    last restore was recorded (Unix microseconds), also a restore that lost nothing: runs that began earlier reconcile
    a write before they send it. `by` is the person who recorded it.
    """

    id: str
    at_us: int
    by: str


@dataclass(frozen=True, slots=True)
class DatabasePlace:
    """The identity of a tenant's PostgreSQL database when it was last checked, and the epoch's version at that time."""

    place: str
    epoch: int


@dataclass(frozen=True, slots=True)
class PublishedHeads:
    """The number of the last entry whose head (length and last hash) was published to a witness, by stream."""

    last: dict[str, int]


EPOCHS: Final = stored("epoch", Epoch)
"""The one document `EPOCH_KEY`."""

DATABASE_PLACES: Final = stored("epoch", DatabasePlace)
"""The one document `DATABASE_PLACE_KEY`, in the same collection."""

PUBLISHED_HEADS: Final = stored("published", PublishedHeads)
"""By the name of the witness."""


def is_epoch_write(write: Write) -> bool:
    """Return whether this write begins a new epoch of the store, as an operator does after a restore from a backup."""
    return (write.collection, write.key) == EPOCHS.place(EPOCH_KEY) and write.body is not None
