"""H2, "It must show" 3: `contextos pack lint` names the fault of each of 60 packs, and passes the two good ones."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from contextos.cli import run_command_line
from tests.attacks.lint_corpus import CORPUS
from tests.unit.cli.conftest import Shop
from tests.unit.control.example import changed, pack_json

Findings = dict[str, list[dict[str, str]]]


@pytest.fixture(scope="session")
def findings(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """What one command line finds in the whole corpus, by the name of the fault."""
    folder = tmp_path_factory.mktemp("corpus")
    names = {}
    for number, (name, (changes, _, _, _)) in enumerate(CORPUS.items()):
        path = folder / f"pack_{number}.json"
        path.write_text(json.dumps(changed(pack_json(), changes)))
        names[str(path)] = name
    out = folder / "found.json"
    with pytest.MonkeyPatch.context() as patch, out.open("w") as stream:
        patch.setattr("sys.stdout", stream)
        assert run_command_line(["pack", "lint", "--adapters", "--json", "--workspace", str(kept), *names]) == 2
    found: Findings = defaultdict(list)
    for problem in json.loads(out.read_text())["problems"]:
        found[names[problem["file"]]].append(problem)
    return found


def test_the_corpus_has_sixty_packs() -> None:
    assert len(CORPUS) == 60


@pytest.mark.parametrize("name", CORPUS)
def test_the_fault_is_named_with_its_place_and_the_nearest_right_name(name: str, findings: Findings) -> None:
    _, where, code, remedy = CORPUS[name]
    named = [one for one in findings[name] if (one["pointer"], one["code"]) == (where, code)]
    assert named, findings[name]
    assert any(remedy in one["remedy"] for one in named), named


def test_the_good_packs_pass(shop: Shop) -> None:
    said = shop.say("pack", "lint", "--adapters", str(shop.path / "pack.json"))
    assert (said.code, said.err) == (0, ""), said.out
