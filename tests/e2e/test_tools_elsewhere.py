"""The refund and the deploy example with their tools elsewhere: the same decision, and only what must differ does.

A place is an HTTP API with an OpenAPI document, an MCP server over stdio or HTTP, or an A2A agent
(`tests.servers.places`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.audit.replay import replay
from contextos.cli.demo.init import WORKSPACE_TEMPLATES
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Entry
from contextos.contracts.ports.gates import Done, Waiting
from contextos.workspace import read_seed
from contextos.workspace.adapter_files import publish_adapter_file
from tests.examples.people import answer
from tests.servers.adapters import foreign_adapter
from tests.servers.listening import load_module
from tests.servers.places import DEPLOY, PLACES, REFUND, ExampleTools, Files
from tests.world import TENANT, TestWorld, open_world, request, run

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Decided:
    """What a governed run left: its record, the kinds of its entries, and what the books say."""

    record: dict[str, Any]
    kinds: list[str]
    books: Any


def endpoints(files: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the adapters reach: a pack and a tenant have to allow it."""
    return sorted({endpoint for file in files for endpoint in file["definition"].get("egress", ())})


def refund(folder: Path, files: Files) -> Decided:
    """Refund INR 4200 with an approval. Without `files` the tools are functions."""
    reached = endpoints(files)

    def allow(pack: dict[str, Any]) -> None:
        if reached:
            pack["tooling_layer"]["egress"] = reached

    async def whole(world: TestWorld) -> Decided:
        view = await world.invoke(request(4200, "req_1"))
        assert view.waiting, view
        assert world.refunds() == [], "nothing is paid before a person agrees"
        view = await world.approve(view.run_id)
        assert view.state == "completed", view.record
        assert view.record is not None
        replayed = await replay(world.deployment, TENANT, view.run_id)
        assert replayed.record_hash == view.record["record_hash"]
        books = [{"order": one["order_id"], "inr": one["amount_inr"]} for one in world.refunds()]
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        return Decided(with_pins(view.record, entries), await world.kinds(view.run_id), books)

    world = run(open_world(folder, pack=allow, egress={TENANT: tuple(reached)}))
    with ExitStack() as on_exit:
        on_exit.callback(world.close)
        for file in files:
            adapter = foreign_adapter(file, folder)
            world.adapters[adapter.describe().adapter_id] = adapter
            if hasattr(adapter, "close"):
                on_exit.callback(adapter.close)
            if hasattr(adapter, "drifted"):
                # It connects here: on a busy machine a server starts in more time than the plan of the example has.
                assert not run(adapter.drifted()), "the server lists what was reviewed"
        return run(whole(world))


def publish(folder: Path, files: Files) -> None:
    """Put the published files in the place of the functions of a workspace, and allow what they reach."""
    settings, pack = folder / "contextos.toml", folder / "packs" / "deploy.yaml"
    (folder / "adapters").mkdir()
    text, _, _ = settings.read_text("utf-8").partition("# The tools.")
    egress = json.dumps(endpoints(files))
    settings.write_text(f"{text}\n[egress]\nacme = {egress}\n", "utf-8")
    pack.write_text(f"{pack.read_text('utf-8')}egress: {egress}\n", "utf-8")
    for file in files:
        place = folder / "adapters" / f"{file['definition']['adapter_id']}.json"
        place.write_text(json.dumps(file), "utf-8")
        publish_adapter_file(folder, place)


def deploy(folder: Path, files: Files) -> Decided:
    """Roll `checkout` back in `prod` with an approval. Without `files` the tools are functions."""
    if files:
        publish(folder, files)
        # A tool of another agent is sent a message, which the example's own tools need no scope for.
        listed = json.loads((folder / "directory.json").read_text("utf-8"))
        for one in listed["acme"]["agents"]:
            one["platform_scopes"] = ["tools:read", "tools:write", "a2a:send"]
        (folder / "directory.json").write_text(json.dumps(listed), "utf-8")
    agent, cluster = load_module(folder / "agent.py"), folder / "cluster.json"
    before = cluster.read_bytes()
    with contextos.open(folder) as app:
        app.initialise("acme", by=contextos.Actor.with_key("otto", read_seed(folder / "keys" / "otto.key")))
        for adapter in app.deployment.ports.adapters("acme").values():
            if hasattr(adapter, "drifted"):
                assert not app.call(adapter.drifted), "the server lists what was reviewed"
        waiting, record = agent.roll_back(app, "s1", "checkout", "prod")
        assert isinstance(waiting, Waiting), waiting
        assert (record, cluster.read_bytes()) == (None, before), "nothing is done before a person agrees"
        run_id = app.gate(session="s1", user="ana", token="tok_ana", agent="agt_deploy").run_id
        answer(app, waiting, run_id, seed=read_seed(folder / "keys" / "olga.key"))
        said, record = agent.roll_back(app, "s1", "checkout", "prod")
        assert isinstance(said, Done), said
        assert app.call(replay, app.deployment, "acme", run_id).record_hash == record["record_hash"]
        entries = app.call(app.deployment.ports.stores.tenant("acme").read, run_id)
        books = json.loads(cluster.read_text("utf-8"))
        done = [list(books["done"].values()), books["services"]["checkout"]["live"]]
        return Decided(with_pins(record, entries), [one.kind for one in entries], done)


def with_pins(record: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    """A record with the pins of its run, which it states by their digest."""
    pins = [read_body(one)["pins"] for one in entries if one.kind == "run.pinned"][-1]
    assert record["lineage"]["pins_digest"] == content_address(pins)
    return {**record, "lineage": {**record["lineage"], "pins": pins}}


PINS = "/lineage/pins/"
DURATIONS = {"/budget_usage/wall_clock_ms", "/scorecard/latency/score"}
"""How long it took, and the score of that."""


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
    """A value without the ids, digests and times that differ from run to run."""
    if not isinstance(value, str):
        return value
    return re.sub(r"sha256:[0-9a-f]{64}|[0-9a-f]{16}|\d{4}-\d\d-\d\dT[0-9:.]+Z", "#", value)


@dataclass(frozen=True)
class Example:
    """An example: its tools, its workspace, and a whole governed run.

    `pack` is its pin. `unnamed` is what a function says and no protocol has a place for: the names of side effects.
    """

    tools: ExampleTools
    make: Callable[[Path], object]
    decide: Callable[[Path, Files], Decided]
    pack: str
    unnamed: frozenset[str] = frozenset()


EXAMPLES: Mapping[str, Example] = {
    "refund": Example(REFUND, Path.mkdir, refund, "ctxpack.support@5.2.0", frozenset({"/effects/0/mutations/0"})),
    "deploy": Example(DEPLOY, WORKSPACE_TEMPLATES["deploy"], deploy, "acme.deploy@1.0.0"),
}


def differing(functions: dict[str, Any], elsewhere: dict[str, Any]) -> set[str]:
    """The paths at which two records differ by more than ids, digests and times. Pins are compared as they are."""
    # What an A2A task gave as artifacts is named beside the answer; a function has none.
    named = [ref for ref in elsewhere["evidence_refs"] if not ref.startswith("artifact:")]
    one, other = dict(texts(functions)), dict(texts({**elsewhere, "evidence_refs": named}))

    def differs(path: str) -> bool:
        if path.startswith(PINS):
            return one.get(path) != other.get(path)
        return settled(one.get(path)) != settled(other.get(path))

    return {path for path in one.keys() | other.keys() if differs(path)} - DURATIONS


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_decision_is_the_same_and_only_what_must_differ_does(
    example: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    known, before, after = EXAMPLES[example], tmp_path / "functions", tmp_path / "elsewhere"
    known.make(before)
    known.make(after)
    functions = known.decide(before, [])
    with PLACES[place](known.tools, after) as files:
        elsewhere = known.decide(after, files)
    assert elsewhere.books == functions.books
    # How often a run is taken up again depends on how long its calls take.
    kinds = [[kind for kind in one.kinds if kind != "run.resumed"] for one in (functions, elsewhere)]
    assert kinds[0] == kinds[1]
    expected = {*known.unnamed}
    # What is called is another adapter, and other code.
    expected |= {f"{PINS}{kind}:{one.adapter_id}" for one in known.tools.definitions for kind in ("adapter", "code")}
    # A package that the functions import is bound as well.
    pins = functions.record["lineage"]["pins"].keys() ^ elsewhere.record["lineage"]["pins"].keys()
    expected |= {PINS + name for name in pins if name.startswith("packages:")}
    if endpoints(files):
        # The tenant and the pack allow what leaves the machine.
        expected |= {f"{PINS}egress", f"{PINS}{known.pack}"}
    assert differing(functions.record, elsewhere.record) == expected
