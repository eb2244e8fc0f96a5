"""What is kept from one question to the next makes no difference: without it, runs have the same entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from contextos.action.barrier import Barrier
from contextos.action.gateway import tool_gateway
from contextos.adapters.function import trees
from contextos.context import compiler
from contextos.contracts import bindings
from contextos.contracts.controls import KnownFacts
from contextos.contracts.entries.linked import RecentlyUsed
from contextos.contracts.journal import Entry
from contextos.contracts.scope import PinnedInputs
from contextos.runtime import code_pins, environment, loop, wiring
from contextos.runtime.attempts import one_plan, session_calls
from contextos.trust.policy import policy_set, rule_index
from contextos.workspace.engine import lease_owner
from tests import world
from tests.golden import make

Patched = pytest.MonkeyPatch


class Drawn:
    """Chance that is the same in every deployment of this test."""

    def __init__(self) -> None:
        self._number = count()

    def take(self, size: int) -> bytes:
        return sha256(b"%d" % next(self._number)).digest()[:size]


def prepared_anew(patched: Patched) -> None:
    patched.setattr(loop, "prepared", lambda of_run, loaded, _: wiring.prepare(loaded, of_run.artifacts.registry))


def compiled_anew(patched: Patched) -> None:
    """Nothing that compiles have in common is kept."""
    compile_context = compiler.compile_context
    patched.setattr(one_plan, "compile_context", lambda inputs, _: compile_context(inputs))


def resolved_anew(patched: Patched) -> None:
    """The arguments of a step are resolved for what is announced, for the Critic and for the call, each time anew."""
    patched.setattr(bindings, "_is_same", lambda *_: False)
    patched.setattr(bindings, "_STEP_SOURCES", frozenset(bindings._SOURCES))


def looked_anew(patched: Patched) -> None:
    expect: Callable[..., None] = Barrier.expect

    def forgotten(self: Barrier, **sought: Any) -> None:
        expect(self, **sought)
        self._found = None

    patched.setattr(Barrier, "expect", forgotten)


def files_anew(patched: Patched) -> None:
    patched.setattr(code_pins, "LOOK_SHARED_US", 0)
    patched.setattr(trees, "LOOK_AGAIN_S", 0)


def of_call_anew(patched: Patched) -> None:
    """The pins that a call uses, and what they are about, its digest among facts, and what a session retrieved."""
    patched.setattr(code_pins, "_split_pins", code_pins._split_pins.__wrapped__)
    also: Callable[..., Any] = KnownFacts.also
    patched.setattr(KnownFacts, "also", lambda self, facts, *_: also(self, facts))
    used_by, known = PinnedInputs.used_by, session_calls.SessionProgress.known

    def used_anew(self: PinnedInputs, *given: Any) -> Any:
        self._used.clear()
        return used_by(self, *given)

    def known_anew(self: session_calls.SessionProgress, *given: Any) -> Any:
        self.retrieved = (), ()
        return known(self, *given)

    patched.setattr(PinnedInputs, "used_by", used_anew)
    patched.setattr(session_calls.SessionProgress, "known", known_anew)


def rules_anew(patched: Patched) -> None:
    for module in (policy_set, rule_index):
        patched.setattr(module, "kept", lambda _kept, _key, value: value)


def every_guard_asked(patched: Patched) -> None:
    patched.setattr(wiring, "guards_of", lambda *_: tool_gateway.GUARDS)


def no_guard_prepared(patched: Patched) -> None:
    """What is not prepared is asked of every guard."""
    patched.setattr(wiring, "Prepared", lambda tools, policy, _, *more: environment.Prepared(tools, policy, {}, *more))


def nothing_found_again(patched: Patched) -> None:
    """Neither what was prepared and loaded, nor which streams were linked, verified or unpacked."""
    patched.setattr(RecentlyUsed, "get", lambda *_: None)


def made(path: Path) -> Path:
    path.mkdir()
    return path


async def journals(path: Path) -> list[tuple[Entry, ...]]:
    opened = await world.open_world(path, stores="sqlite")
    try:
        kept = opened.stores.tenant(world.TENANT)
        runs = [*(await make.runs(opened)).values(), *(await make.sessions(opened)).values()]
        return [(await kept.read_run(run_id)).entries for run_id in runs]
    finally:
        await opened.aclose()


WITHOUT = [
    prepared_anew,
    compiled_anew,
    resolved_anew,
    looked_anew,
    files_anew,
    of_call_anew,
    rules_anew,
    every_guard_asked,
    no_guard_prepared,
    nothing_found_again,
]


@pytest.mark.parametrize("without", WITHOUT)
def test_runs_without_a_memo_have_the_same_entries(
    without: Callable[[Patched], None], tmp_path: Path, monkeypatch: Patched
) -> None:
    monkeypatch.setattr(world, "SystemEntropy", Drawn)
    monkeypatch.setattr(lease_owner.secrets, "token_hex", lambda size: "0" * 2 * size)
    expected = asyncio.run(journals(made(tmp_path / "with")))
    assert len(expected) == 8
    with monkeypatch.context() as patched:
        without(patched)
        assert asyncio.run(journals(made(tmp_path / "without"))) == expected
