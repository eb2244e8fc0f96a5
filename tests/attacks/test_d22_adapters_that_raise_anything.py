"""D22: an adapter that raises anything, hangs or kills its thread harms no command and no worker."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.function.adapter import FunctionAdapter
from contextos.adapters.function.loading import load_function_adapters
from contextos.contracts.envelopes.tool import AdapterReply
from contextos.deployment.dead_letters import list_dead_letters
from contextos.deployment.deployment import Deployment, due_runs
from contextos.errors import InvalidSettings, LostReply, Unavailable
from contextos.trust.journal.ledger import RunJournal
from contextos.workspace.engine.local import LocalEngine
from tests.world import TENANT, ManualClock, TestWorld, open_world, request, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


class Unheard(BaseException):
    """An exception of the adapter's own that is no `Exception`."""


class Lying(Exception):
    """An exception that raises when it is looked at."""

    def __str__(self) -> str:
        raise SystemExit(0)

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise SystemExit(0)


RAISED: dict[str, Any] = {
    "SystemExit": lambda: SystemExit(0),
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "MemoryError": MemoryError,
    "StopIteration": StopIteration,
    "TimeoutError": TimeoutError,
    "RecursionError": RecursionError,
    "ValueError": lambda: ValueError("a card number"),
    "Unheard": Unheard,
    "Lying": Lying,
}


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    """`sqlite`, or the URL of a database of its own, with the application's role."""
    return "sqlite" if request.param == "sqlite" else str(request.getfixturevalue("database").app)


class OwnClass:
    """An adapter of the user's own class. It pays, and then does what `then` does."""

    def __init__(self, adapter: Any, then: Any, *, before: bool = False) -> None:
        self.adapter, self.then, self.before, self.calls = adapter, then, before, 0

    def describe(self) -> Any:
        return self.adapter.describe()

    async def call(self, capability: str, args: Mapping[str, Any], context: Any) -> AdapterReply:
        self.calls += 1
        if not self.before:
            await self.adapter.call(capability, args, context)
        answer: AdapterReply = await self.then()
        return answer

    async def lookup(self, capability: str, idempotency_key: str, context: Any) -> AdapterReply | None:
        answer: AdapterReply = await self.then()
        return answer


def raising(name: str) -> Any:
    async def then() -> Any:
        raise RAISED[name]()

    return then


def as_function(world: TestWorld, name: str, *, in_thread: bool) -> FunctionAdapter:
    """A `FunctionAdapter` that pays and raises: in a thread, or on the event loop."""
    inner, paid = world.adapters["adp_payments"], []

    def pay(args: Mapping[str, Any], context: Any) -> Any:
        paid.append(asyncio.run(inner.call("issue_refund", args, context)))
        raise RAISED[name]()

    async def pay_on_the_loop(args: Mapping[str, Any], context: Any) -> Any:
        await inner.call("issue_refund", args, context)
        raise RAISED[name]()

    definition = inner.describe()
    return FunctionAdapter(definition, {"issue_refund": pay if in_thread else pay_on_the_loop})


@pytest.mark.parametrize("name", RAISED)
@pytest.mark.parametrize("kind", ["own class", "thread", "event loop"])
def test_a_payment_whose_adapter_raised_anything_waits_for_a_person(kind: str, name: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, payments="none")
        if kind == "own class":
            world.adapters["adp_payments"] = OwnClass(world.adapters["adp_payments"], raising(name))
        else:
            world.adapters["adp_payments"] = as_function(world, name, in_thread=kind == "thread")
        view = await world.invoke(request(900, "req_1"))
        assert len(world.refunds()) == 1
        assert view.waiting is not None
        assert view.waiting["for"] == "settlement"
        world.close()

    run(act())


@pytest.mark.parametrize("name", RAISED)
def test_a_lookup_that_raises_anything_leaves_the_effect_uncertain(name: str, tmp_path: Path) -> None:
    async def act() -> None:
        # The shop refuses by the time of this machine what comes after its `not_after`.
        clock = ManualClock(time.time_ns() // 1_000)
        world = await open_world(tmp_path, payments="lookup", clock=clock)
        world.adapters["adp_payments"] = OwnClass(world.adapters["adp_payments"], raising(name))
        view = await world.invoke(request(900, "req_1"))
        assert len(world.refunds()) == 1
        assert not view.ended
        world.close()

    run(act())


@pytest.mark.parametrize("name", RAISED)
def test_a_read_that_raises_anything_fails_its_run_and_pays_nothing(name: str, stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        world.adapters["adp_orders"] = OwnClass(world.adapters["adp_orders"], raising(name))
        view = await world.invoke(request(900, "req_1"))
        assert (view.state, world.refunds()) == ("escalated", [])
        await world.aclose()

    run(act())


@pytest.mark.parametrize("answer", [None, 7, {"amount": 1}, "ok", AdapterReply.model_construct(output={1: object()})])
def test_an_answer_that_is_no_reply_is_a_fault(answer: Any, tmp_path: Path) -> None:
    async def then() -> Any:
        return answer

    async def act() -> None:
        world = await open_world(tmp_path, payments="none")
        world.adapters["adp_payments"] = OwnClass(world.adapters["adp_payments"], then)
        view = await world.invoke(request(900, "req_1"))
        assert view.waiting is not None
        assert view.waiting["for"] == "settlement"
        world.close()

    run(act())


def test_an_adapter_that_hangs_and_refuses_to_be_cancelled_is_left_behind(tmp_path: Path) -> None:
    released: list[bool] = []

    async def for_ever() -> Any:
        while not released:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    class Impatient(OwnClass):
        def describe(self) -> Any:
            definition = self.adapter.describe()
            (capability,) = definition.capabilities
            return definition.model_copy(update={"capabilities": (capability.model_copy(update={"timeout_s": 2}),)})

    async def act() -> None:
        world = await open_world(tmp_path, payments="none")
        world.adapters["adp_payments"] = Impatient(world.adapters["adp_payments"], for_ever)
        asked = asyncio.ensure_future(world.invoke(request(900, "req_1")))
        done, _ = await asyncio.wait({asked}, timeout=60)
        released.append(True)
        assert done, "the adapter holds the run"
        view = asked.result()
        assert view.waiting is not None
        assert view.waiting["for"] == "settlement"
        await asyncio.sleep(0.2)
        world.close()

    run(act())


@pytest.mark.parametrize("name", RAISED)
def test_a_definition_that_cannot_be_read_stops_no_process(name: str, tmp_path: Path) -> None:
    class Mute(OwnClass):
        def describe(self) -> Any:
            raise RAISED[name]()

    async def act() -> None:
        world = await open_world(tmp_path)
        world.adapters["adp_orders"] = Mute(world.adapters["adp_orders"], raising(name))
        with pytest.raises(Unavailable, match="adp_orders"):
            await world.invoke(request(900, "req_1"))
        world.close()

    run(act())


@pytest.mark.parametrize("name", [name for name in RAISED if name != "KeyboardInterrupt"])
@pytest.mark.parametrize("place", ["module", "factory"])
def test_code_that_raises_anything_while_it_is_loaded_is_refused(name: str, place: str, tmp_path: Path) -> None:
    body = "import tests.attacks.test_d22_adapters_that_raise_anything as here\n"
    body += f"def stop(): raise here.RAISED[{name!r}]()\n"
    body += "stop()\n" if place == "module" else "def adapters(workspace): stop()\n"
    (tmp_path / f"own_{place}_{name}.py").write_text(body, "utf-8")
    with pytest.raises(InvalidSettings, match="does not load"):
        load_function_adapters(f"own_{place}_{name}.py:adapters", None, root=tmp_path)


def test_a_worker_goes_on_after_each_adapter_that_tries_to_stop_it(stores: str, tmp_path: Path) -> None:
    """Eleven runs, each of which raises something else, and one that pays."""
    names = [*RAISED, "pays"]

    async def act() -> None:
        world = await open_world(tmp_path, stores=stores, payments="none")
        inner = world.adapters["adp_payments"]

        class ByAmount(OwnClass):
            async def call(self, capability: str, args: Mapping[str, Any], context: Any) -> AdapterReply:
                name = names[args["amount_inr"] - 900]
                if name == "pays":
                    return await inner.call(capability, args, context)
                raise RAISED[name]()

        world.adapters["adp_payments"] = ByAmount(inner, None)
        engine = LocalEngine(world.deployment.advance, world.stores, world.clock, orphans=None)
        made = []
        for number in range(len(names)):
            body = request(900 + number, f"req_{number}")
            made.append((await world.invoke({**body, "mode": "long_running"})).run_id)
        await engine.start()
        for run_id in made:
            engine.submit(TENANT, run_id)
        await asyncio.wait_for(engine.idle(), 60)
        await engine.stop()
        views = [await world.deployment.view(TENANT, run_id) for run_id in made]
        assert [view.waiting["for"] if view.waiting else view.state for view in views] == [
            "settlement" if name != "pays" else "completed" for name in names
        ]
        assert engine.failures == {}
        await world.aclose()

    run(act())


def killed_in_a_read(world: TestWorld) -> OwnClass:
    """An adapter whose read never comes back: the test cancels the drive, as the kernel ends a process."""

    async def never() -> Any:
        await asyncio.Event().wait()

    return OwnClass(world.adapters["adp_orders"], never, before=True)


def test_a_run_that_kills_every_driver_becomes_a_dead_letter(
    stores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        """A process that dies lets no run go."""

    monkeypatch.setattr(RunJournal, "let_go", nothing)

    async def act() -> None:
        clock = ManualClock()
        world = await open_world(tmp_path, stores=stores, clock=clock)
        received = await world.invoke({**request(900, "req_1"), "mode": "long_running"})
        killing = killed_in_a_read(world)
        world.adapters["adp_orders"] = killing
        for life in range(20):
            # Each life of the worker is a process of its own, with an owner of its own.
            dead = f"{life:016x}"
            ports = replace(world.deployment.ports, owner=dead, alive=lambda owner, me=dead: owner == me)
            deployment = Deployment(ports, world.deployment.config)
            clock.at_us += 200_000_000
            due = [one async for one in due_runs(deployment)]
            if await list_dead_letters(world.stores.tenant(TENANT)):
                break
            assert due == [(TENANT, received.run_id)]
            calls = killing.calls
            drive = asyncio.ensure_future(deployment.advance(TENANT, received.run_id))
            while killing.calls == calls and not drive.done():  # noqa: ASYNC110 - the drive gets there
                await asyncio.sleep(0.001)
            drive.cancel()
            await asyncio.wait({drive})
        (letter,) = await list_dead_letters(world.stores.tenant(TENANT))
        assert (letter.run_id, letter.code, killing.calls) == (received.run_id, "worker_lost", 6)
        await world.aclose()

    run(act())


PAYS_AND_LEAVES = """

def adapters(workspace):
    store = Shop(Path(workspace) / FILE)
    paying = payments(store, "none", unix_us)

    def issue_refund(args, context):
        import asyncio, sys
        asyncio.run(paying.call("issue_refund", args, context))
        {leave}

    return (orders(store), policy(store), FunctionAdapter(paying.describe(), {{"issue_refund": issue_refund}}))
"""


def command(workspace: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CONTEXTOS_")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "CONTEXTOS_WORKSPACE": str(workspace)}
    line = [sys.executable, "-m", "contextos.cli", *arguments]
    return subprocess.run(line, env=environment, text=True, capture_output=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("d22") / "shop"
    assert command(path.parent, "demo", "--yes", "--json", "--keep", str(path)).returncode == 0
    return path


@pytest.mark.parametrize(
    "leave", ["sys.exit()", "raise KeyboardInterrupt", "import _thread; _thread.exit()", "import time; time.sleep(55)"]
)
def test_the_command_line_never_says_that_all_is_well_after_such_a_payment(
    workspace: Path, leave: str, request: pytest.FixtureRequest
) -> None:
    source, settings = workspace / "shop.py", workspace / "contextos.toml"
    before = source.read_text("utf-8"), settings.read_text("utf-8")
    changed = before[0].replace('timeout_s": 10', 'timeout_s": 2') + PAYS_AND_LEAVES.format(leave=leave)
    source.write_text(changed, "utf-8")
    digest = f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()}"
    settings.write_text(re.sub(r"sha256:[0-9a-f]{64}", digest, before[1]), "utf-8")
    try:
        asked = json.loads((workspace / "requests" / "next.json").read_text("utf-8"))
        asked["request_id"] = f"req_{hashlib.sha256(leave.encode()).hexdigest()[:8]}"
        asked["input"]["context"]["refund_amount"] = 100 + len(leave)
        file = workspace / "asked.json"
        file.write_text(json.dumps(asked), "utf-8")
        done = command(workspace, "invoke", str(file), "--json")
        assert done.returncode == 5, done.stdout + done.stderr
        assert json.loads(done.stdout)["waiting"]["for"] == "settlement"
    finally:
        source.write_text(before[0], "utf-8")
        settings.write_text(before[1], "utf-8")


def test_a_cancelled_drive_is_still_cancelled(tmp_path: Path) -> None:
    """What the adapter raises is caught; what the runtime itself cancels still stops."""

    async def act() -> None:
        world = await open_world(tmp_path)
        world.adapters["adp_orders"] = killed_in_a_read(world)
        asked = asyncio.ensure_future(world.invoke(request(900, "req_1")))
        await asyncio.sleep(0.1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        world.close()

    run(act())


def test_the_port_keeps_its_promise_for_each_kind_of_call(tmp_path: Path) -> None:
    """A write that raised may have happened; only `Unavailable` of the adapter's own says that it did not."""

    async def away() -> Any:
        raise Unavailable("adp_payments", "it is away")

    async def lost() -> Any:
        raise LostReply("no answer")

    async def act() -> None:
        world = await open_world(tmp_path, payments="none")
        world.adapters["adp_payments"] = OwnClass(world.adapters["adp_payments"], away, before=True)
        refused = await world.invoke(request(900, "req_1"))
        assert (refused.state, world.refunds()) == ("escalated", [])
        world.adapters["adp_payments"] = OwnClass(world.adapters["adp_payments"].adapter, lost)
        unknown = await world.invoke(request(901, "req_2"))
        assert unknown.waiting is not None
        world.close()

    run(act())
