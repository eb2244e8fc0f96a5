"""A workspace of an example whose people have keys, for tests."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import contextos
from contextos.contracts.ports.gates import Waiting
from contextos.trust.seal import kid_of
from contextos.workspace import make_keys
from tests.world import public_key

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SEEDS = {"olga": bytes(range(32)), "otto": bytes(range(1, 33))}


@contextmanager
def modules_of(example: str, folder: Path, *names: str) -> Iterator[list[ModuleType]]:
    """Copy an example to `folder`, give its people keys, and import its modules from there."""
    shutil.copytree(EXAMPLES / example, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    make_keys(folder / "keys")
    directory = json.loads((folder / "directory.json").read_text("utf-8"))
    for person in directory["acme"]["approvers"]:
        public = public_key(SEEDS[person["approver_id"]])
        person["keys"] = [{"kid": kid_of(public), "public_key": public.hex()}]
    (folder / "directory.json").write_text(json.dumps(directory), "utf-8")
    (folder / "contextos.toml").write_text('witness = "off"\n', "utf-8")
    sys.path.insert(0, str(folder))
    try:
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(folder))


def lines_of(example: str, *names: str) -> int:
    """The lines of the user's own files that are not blank."""
    texts = [(EXAMPLES / example / name).read_text("utf-8") for name in names]
    return sum(bool(line.strip()) for text in texts for line in text.splitlines())


def opened(tools: Any) -> Any:
    """The deployment of the workspace that is the current directory."""
    return contextos.open(".", adapters=[tools], dev=True)


def install(app: Any, pack: Any) -> None:
    app.install(pack, by=contextos.Actor.with_key("otto", SEEDS["otto"]))


def answer(app: Any, waiting: Waiting, run_id: str, verdict: str = "approved", *, seed: bytes = SEEDS["olga"]) -> None:
    """What the person does who is asked."""
    app.call(
        contextos.answer_approval,
        app.deployment,
        "acme",
        run_id,
        approver_id="olga",
        verdict=verdict,
        reason="looked at it",
        binding_digest=waiting.question["binding_digest"],
        vouch=contextos.answer_signer(seed),
    )
