"""The example `deploy_by_model`: the tools and rules of `deploy_rollback`, and a model that the runtime asks."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BASE, OVER = EXAMPLES / "deploy_rollback", EXAMPLES / "deploy_by_model"
RUN = "req_checkout"


def contextos(folder: Path, *words: str) -> Any:
    command = [sys.executable, "-m", "contextos", *words, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agent") / "shop"
    contextos(folder.parent, "init", str(folder), "--from", "agent")
    contextos(folder, "apply", "--by", "otto", "--key", "keys/otto.key")
    return folder


def test_the_pack_is_that_of_the_other_form_and_little_more() -> None:
    base, over = ((one / "packs" / "deploy.yaml").read_text("utf-8") for one in (BASE, OVER))
    assert over.startswith(base)
    own = [(OVER / "packs" / one).read_text("utf-8") for one in ("large.yaml", "routing.yaml")]
    more = "".join([over.removeprefix(base), *own])
    assert len([line for line in more.splitlines() if line.strip()]) <= 25
    settings = [tomllib.loads((one / "contextos.toml").read_text("utf-8")) for one in (BASE, OVER)]
    assert settings[0]["adapters"] == settings[1]["adapters"]


def test_a_model_looks_asks_a_person_and_rolls_back(workspace: Path) -> None:
    waiting = contextos(workspace, "invoke", "request.json")
    assert waiting["state"] == "waiting"
    binding = waiting["waiting"]["binding_digest"]
    by = ("--as", "olga", "--key", "keys/olga.key", "--binding", binding)
    assert contextos(workspace, "approvals", "approve", RUN, *by)["state"] == "completed"
    cluster = json.loads((workspace / "cluster.json").read_text("utf-8"))
    assert len(cluster["done"]) == 1, "it was rolled back once"
    [replayed] = contextos(workspace, "replay", RUN)["replayed"]
    assert (replayed["equal"], replayed["status"]) == (True, "DECIDED")
    [cost] = contextos(workspace, "models", "cost")["costs"]
    assert (cost["calls"], cost["taken"], cost["cost_usd_cents"]) == (3, 3, 1.185)


def test_its_profile_is_one_of_a_provider_with_three_lines(workspace: Path) -> None:
    told = yaml.safe_load((OVER / "packs" / "large.yaml").read_text("utf-8"))
    assert told["wire"] == "scripted"
    of_provider = told | {"wire": "openai", "endpoint": "https://api.provider.example/v1", "credential": "main"}
    (workspace / "real.yaml").write_text(yaml.safe_dump(of_provider), "utf-8")
    assert contextos(workspace, "pack", "lint", "real.yaml")["problems"] == []
