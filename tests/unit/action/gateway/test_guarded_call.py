"""Which arguments of a call count as untrusted destinations."""

from __future__ import annotations

import pytest

from contextos.contracts.ports.calls import ToolCall
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
        (call(saw_untrusted=True), ["note", "text", "to"]),
        (call(found={}), []),
    ],
)
def test_a_destination_counts_if_nothing_trusted_has_it(one: ToolCall, names: list[str]) -> None:
    assert list(one.untrusted_destinations) == names
