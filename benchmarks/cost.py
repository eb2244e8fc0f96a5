"""What a run costs, counted and not timed: `python -m benchmarks.cost`.

With `--functions` by function; `--write` writes the table.

Bytecode instructions of Python (opcodes) that a refund, a refund with approval, a `gate.call` of a read and a run with
one question to a scripted model take, and how often each does what is dear. The same code gives the same numbers on any
machine with the same minor version of Python, so `tests/test_cost.py` compares them with `benchmarks/cost.toml`. Each
flow has run before, so its caches are warm, and counts as its cheapest of three times. The opcodes of the event loop
and of threads that wait are left out: how often these look is a matter of time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, Final

from pydantic import BaseModel

from benchmarks import model_runs, outside, refund_pack, sessions
from contextos.adapters.function import trees
from contextos.adapters.models.scripted import ScriptedModels
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.journal import link
from contextos.decision.planners.model import END_NAME
from contextos.deployment.deployment import Deployment
from contextos.runtime import code_pins
from contextos.trust import seal
from contextos.trust.policy.policy_set import PolicySet

TABLE: Final = Path(__file__).with_name("cost.toml")
WAITING: Final = ("asyncio", "concurrent", "threading.py", "selectors.py", "queue.py", "socket.py")
"""Modules of the standard library that wait."""
CALLS: Final[dict[CodeType, str]] = {
    canonical.__code__: "canonicalisations",
    content_address.__code__: "content addresses",
    link.__code__: "entries",
    seal.KeyRing.sign.__code__: "signatures",
    seal.verify_signature.__code__: "verifications",
    BaseModel.model_validate.__func__.__code__: "validations",  # type: ignore[attr-defined]
    PolicySet.decide.__code__: "policy decisions",
}
"""What is counted, by the code that does it."""
READS: Final = ("read", "read_run", "length", "scan", "look", "lines", "latest_us")

Costs = dict[str, dict[str, int]]


class Counting:
    """Counts opcodes and calls while it is entered, in every thread that began after `install`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.functions: Counter[CodeType] = Counter()
        self._is_on = False
        self._waits: dict[str, bool] = {}

    def install(self) -> None:
        threading.settrace(self._call)
        sys.settrace(self._call)

    def __enter__(self) -> Counter[str]:
        self.counts, self.functions = Counter(), Counter()
        self._is_on = True
        return self.counts

    def __exit__(self, *_: object) -> None:
        self._is_on = False

    def _call(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if not self._is_on:
            return None
        if name := CALLS.get(frame.f_code):
            self.counts[name] += 1
        if self._is_waiting(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._opcode

    def _opcode(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "opcode" and self._is_on:
            self.counts["opcodes"] += 1
            self.functions[frame.f_code] += 1
        return self._opcode

    def _is_waiting(self, file: str) -> bool:
        if file not in self._waits:
            library = Path(os.__file__).parent
            path = Path(file)
            inside = path.relative_to(library).parts[0] if path.is_relative_to(library) else ""
            self._waits[file] = inside in WAITING
        return self._waits[file]


async def refund(deployment: Deployment, number: int) -> None:
    view = await deployment.invoke(outside.request(number, 900))
    assert view.record["status"] == "DECIDED", view


async def approved_refund(deployment: Deployment, number: int) -> None:
    view = await deployment.invoke(outside.request(number, 4200))
    await refund_pack.approve(deployment, view.run_id)
    await deployment.advance(refund_pack.TENANT, view.run_id)
    view = await deployment.view(refund_pack.TENANT, view.run_id)
    assert view.record["status"] == "DECIDED", view


async def measured(
    counting: Counting, store: outside.Watched, flow: Callable[[int], Awaitable[None]]
) -> dict[str, int]:
    """Return the counts of the cheapest of three times that `flow` runs, when its caches are warm.

    What happens now and then (a sweep, a thread that starts, a finalizer) is not what a flow costs.
    """
    for number in (1, 2):
        await flow(number)
    found = [await counted(counting, store, flow, number) for number in (3, 4, 5)]
    if "--functions" in sys.argv:
        print(f"-- {flow.__name__}", *shares(counting.functions), sep="\n")
    return min(found, key=lambda one: one["opcodes"])


async def counted(
    counting: Counting, store: outside.Watched, flow: Callable[[int], Awaitable[None]], number: int
) -> dict[str, int]:
    """Return what one time costs."""
    store.calls.clear()
    store.batches.clear()
    with counting as counts:
        await flow(number)
    entries = [entry for batch in store.batches for entry in batch.entries]
    return {
        **{name: counts[name] for name in ("opcodes", *CALLS.values())},
        "commits": store.calls["commit"],
        "store reads": sum(store.calls[name] for name in READS)
        + sum(count for name, count in store.calls.items() if name.startswith("scan ")),
        "bytes of entries": sum(len(entry.body or b"") for entry in entries),
    }


def shares(functions: Counter[CodeType]) -> list[str]:
    """Return the functions in which most opcodes are, one line each."""
    parts = (
        f"{count:>8,} {Path(code.co_filename).name}:{code.co_firstlineno} {code.co_qualname}"
        for code, count in functions.most_common(60)
    )
    return list(parts)


async def costs(folder: Path) -> Costs:
    """Return what each flow costs."""
    # How often a process looks at files is a matter of time too.
    trees.LOOK_AGAIN_S, code_pins.LOOK_SHARED_US = float("inf"), sys.maxsize
    counting = Counting()
    counting.install()
    found: Costs = {}
    for name, amount in (("refund", refund), ("refund with approval", approved_refund)):
        (folder / name).mkdir()
        deployment, store = await outside.watched(folder / name)
        flow = amount

        async def one(number: int, flow: Any = flow, deployment: Deployment = deployment) -> None:
            await flow(deployment, number)

        found[name] = await measured(counting, store, one)
        outside.close(deployment)
    (folder / "gate").mkdir()
    deployment, store = outside.watch(await sessions.opened(folder / "gate", of_agent=True))
    gate = await sessions.session(deployment, 0)
    await sessions.read(gate, 0)

    async def call(number: int) -> None:
        await sessions.read(gate, number)

    found["gate.call of a read"] = await measured(counting, store, call)
    outside.close(deployment)
    (folder / "model").mkdir()
    end = {"calls": [{"tool": END_NAME, "args": {"outcome": "escalated", "reason": "done"}}]}
    deployment, store = await model_runs.opened(folder / "model", 1, "agent-0", ScriptedModels({"agent-0": [end] * 5}))

    async def asked(number: int) -> None:
        await model_runs.run(deployment, number, 0)

    found["run of one model call"] = await measured(counting, store, asked)
    outside.close(deployment)
    return found


def stated() -> Costs:
    """Return what `cost.toml` allows, by flow."""
    return {name: dict(flow["most"]) for name, flow in tomllib.loads(TABLE.read_text("utf-8")).items()}


def write(found: Costs) -> None:
    """Write what was counted into `cost.toml`, and keep the reasons there."""
    table = tomllib.loads(TABLE.read_text("utf-8"))
    lines = [
        "# What each flow costs at most: `python -m benchmarks.cost --write`. A number that rises needs its reason."
    ]
    for name, counts in found.items():
        lines += ["", f"[{json.dumps(name)}]", "because = ["]
        lines += [f"    {json.dumps(reason)}," for reason in table.get(name, {}).get("because", ())]
        lines += ["]", "", f"[{json.dumps(name)}.most]"]
        lines += [f"{json.dumps(count)} = {number}" for count, number in counts.items()]
    TABLE.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    with TemporaryDirectory() as folder:
        found = asyncio.run(costs(Path(folder)))
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    most = stated()
    for flow, counts in found.items():
        print(flow)
        for name, count in counts.items():
            print(f"  {name:<22}{count:>9,}  at most {most.get(flow, {}).get(name, 0):>9,}")
    if "--write" in sys.argv:
        write(found)


if __name__ == "__main__":
    main()
