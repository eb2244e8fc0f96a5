"""Only a write of the epoch itself begins an epoch: a check does not, and neither does the database's identity."""

from __future__ import annotations

from contextos.contracts.documents.epochs import (
    DATABASE_PLACE_KEY,
    DATABASE_PLACES,
    EPOCH_KEY,
    EPOCHS,
    DatabasePlace,
    Epoch,
    is_epoch_write,
)


def test_only_a_new_epoch_counts() -> None:
    assert is_epoch_write(EPOCHS.write(EPOCH_KEY, 0, Epoch("e", 1, "olga")))
    assert not is_epoch_write(EPOCHS.check(EPOCH_KEY, 1))
    assert not is_epoch_write(DATABASE_PLACES.write(DATABASE_PLACE_KEY, 0, DatabasePlace("p", 0)))
