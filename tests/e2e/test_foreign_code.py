"""Whatever a function of an adapter answers or raises, its run ends or waits in a typed way, and the journal holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.function import BusinessError, FunctionAdapter
from contextos.contracts.tool import AdapterReply, CallContext
from tests.e2e.test_verdicts import audited
from tests.world import TestWorld, open_world, request, run

LOST = {"a key that is no text": {1: 2}, "no object": 7, "nothing": None, "a cost without bounds": (1e300,)}
TOLD = {
    "a long error": BusinessError("c" * 900, "m" * 400_000), "half a character": BusinessError("x", "\ud800"),
    "a code that is no text": BusinessError(404, "gone"), "a key within": {"a": {1: 2}},  # type: ignore[arg-type]
    "an object within": {"a": object()}, "no number": {"a": float("nan")},
}  # fmt: skip


def answering(world: TestWorld, adapter_id: str, answer: Any) -> None:
    """Put an adapter in its place that declares the same and always answers this."""
    definition = world.adapters[adapter_id].describe()

    def function(args: Mapping[str, Any], context: CallContext) -> Any:
        if isinstance(answer, BusinessError):
            raise answer
        return AdapterReply(output={}, cost_cents=answer[0]) if isinstance(answer, tuple) else answer

    world.adapters[adapter_id] = FunctionAdapter(definition, {one.name: function for one in definition.capabilities})


@pytest.mark.parametrize("name", LOST | TOLD)
@pytest.mark.parametrize("adapter_id", ["adp_orders", "adp_payments"])
def test_no_answer_of_foreign_code_escapes(adapter_id: str, name: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        answering(world, adapter_id, (LOST | TOLD)[name])
        view = await world.invoke(request(900, "req_1"))
        assert world.refunds() == []
        if adapter_id == "adp_payments" and name in LOST:
            assert view.waiting is not None
            assert view.waiting["for"] == "settlement", "it may have happened; only a person can tell"
        else:
            assert view.state == "escalated"
            await audited(world, view)
        world.close()

    run(go())
