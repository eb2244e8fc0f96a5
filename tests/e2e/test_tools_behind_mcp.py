"""The refund example with its tools behind an MCP server: the same decision, and a record that differs as it must."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from tests.servers.adapters import same_tools, shop_connection
from tests.world import TENANT, TestWorld, open_world, request, run


def texts(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, child in value.items():
            yield from texts(child, f"{path}/{name}")
    elif isinstance(value, list | tuple):
        for at, child in enumerate(value):
            yield from texts(child, f"{path}/{at}")
    else:
        yield path, value


def settled(value: Any) -> Any:
    """A value without the ids and digests that differ from run to run."""
    return re.sub(r"sha256:[0-9a-f]{64}|[0-9a-f]{16}", "#", value) if isinstance(value, str) else value


def decided(folder: Path, transport: str) -> dict[str, Any]:
    """Refund INR 4200 with an approval; return the record, without what differs from one run to the next."""
    folder.mkdir()

    async def whole(world: TestWorld) -> dict[str, Any]:
        view = await world.invoke(request(4200, "req_1"))
        assert view.waiting, view
        view = await world.approve(view.run_id)
        assert view.state == "completed", view.record
        kinds = await world.kinds(view.run_id)
        assert [one["amount_inr"] for one in world.refunds()] == [4200]
        await replay(world.deployment, TENANT, view.run_id)
        return {"record": view.record, "kinds": kinds}

    world = run(open_world(folder))
    with ExitStack() as on_exit:
        on_exit.callback(world.close)
        definitions = [adapter.describe() for adapter in world.adapters.values()]
        if transport != "function":
            connection = on_exit.enter_context(shop_connection(transport, folder))
            for definition in definitions:
                adapter = same_tools(definition, connection, folder)
                on_exit.callback(adapter.close)
                world.adapters[definition.adapter_id] = adapter
        return run(whole(world))


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_decision_is_the_same_and_only_what_must_differ_does(transport: str, tmp_path: Path) -> None:
    functions, server = decided(tmp_path / "functions", "function"), decided(tmp_path / "mcp", transport)
    # Answers of a foreign server are not trusted, so where each argument came from is on record.
    assert functions["kinds"] == [kind for kind in server["kinds"] if kind != "arguments.traced"]
    one, other = dict(texts(functions["record"])), dict(texts(server["record"]))
    differs = {path for path in one.keys() | other.keys() if settled(one.get(path)) != settled(other.get(path))}
    # MCP has no names of side effects. Everything else that differs is an id or a digest, or counts that entry.
    traced = {"/approvals/0/decided_at", "/timestamp", "/lineage/ledgers/effect/entries", "/budget_usage/wall_clock_ms"}
    assert differs == {"/effects/0/mutations/0"} | traced
    assert one["/lineage/pins/adapter:adp_payments"] != other["/lineage/pins/adapter:adp_payments"]
