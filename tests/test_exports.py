"""The public names: what `__all__` says is there, is all there is, and is few."""

from __future__ import annotations

import contextos

MOST = 24


def test_every_public_name_can_be_imported_and_there_are_few() -> None:
    assert len(contextos.__all__) <= MOST
    assert all(getattr(contextos, name) is not None for name in contextos.__all__)


def test_what_is_public_is_what_all_says() -> None:
    assert sorted(contextos.__all__) == list(contextos.__all__)
    assert set(contextos.__all__) == {*contextos._HOME, "__version__"}


def test_an_unknown_name_is_refused_by_name() -> None:
    assert not hasattr(contextos, "no_such_name")
