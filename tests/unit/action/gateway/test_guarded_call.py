"""Which arguments of a call count as untrusted destinations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contextos.action.gateway.guarded_call import GuardedCall
from tests.unit.action.gateway.origin_calls import call


@pytest.mark.parametrize(
    ("one", "names"),
    [
        (call(), ["text", "to"]),
        (call(destinations=("to", "cents")), ["to"]),
        (call(destinations=("cents", "note")), ["note"]),
        (call(destinations=()), []),
        (call(kind="read"), []),
        (call(kind="read", destinations=("to", "note")), ["note", "to"]),
        (replace(call(), saw_untrusted=True), ["note", "text", "to"]),
        (call(found={}), []),
    ],
)
def test_a_destination_counts_if_nothing_trusted_has_it(one: GuardedCall, names: list[str]) -> None:
    assert list(one.untrusted_destinations) == names
