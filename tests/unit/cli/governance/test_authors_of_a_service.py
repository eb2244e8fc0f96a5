"""An author works in a fresh workspace of the profile `service`, before its store is made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextos.adapters.signed_directory import sign_directory
from contextos.cli.demo.init import WORKSPACE_TEMPLATES
from tests.unit.adapters.test_signed_directory import KEEPER
from tests.world import public_key

SERVICE = """\
profile = "service"
environment = "prod"

[keys]
kind = "pkcs8"
path = "sealed"
passphrase_file = "passphrase"

[directory]
kind = "signed"
path = "directory.dsse.json"
signers = ["{signer}"]

"""


@pytest.fixture
def service(say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "w"
    WORKSPACE_TEMPLATES["deploy"](path)
    monkeypatch.chdir(path)
    (path / "passphrase").write_text("correct horse battery staple", "utf-8")
    (path / "passphrase").chmod(0o600)
    made = say("key", "new", "sealed", "--runtime", "--pkcs8", "--passphrase-file", "passphrase")
    assert made.code == 0, made.err
    tenants = json.loads((path / "directory.json").read_text("utf-8"))
    (path / "directory.dsse.json").write_bytes(sign_directory(tenants, version=1, private_key=KEEPER))
    settings = path / "contextos.toml"
    tools = settings.read_text("utf-8")
    settings.write_text(SERVICE.format(signer=public_key(KEEPER).hex()) + tools[tools.index("[[adapters]]") :], "utf-8")
    return path


def test_packs_are_linted_expanded_drafted_and_signed_before_there_is_a_store(say, service: Path) -> None:
    pack = "packs/deploy.yaml"
    for words in (
        ("pack", "lint", pack),
        ("pack", "lint", pack, "--adapters"),
        ("pack", "expand", pack),
        ("pack", "new", "acme.other", "--who", "deployer"),
        ("pack", "sign", pack, "--key", "keys/otto.key", "--out", "packs/deploy.json"),
        ("pack", "diff", pack, "packs/deploy.json"),
    ):
        said = say(*words)
        assert said.code == 0, (words, said.err)
    assert not list(service.glob("*.db*")), "nothing was stored"


def test_what_runs_a_service_still_needs_its_own_store(say, service: Path) -> None:
    """Only reading for an author has none; what acts opens the one of the settings."""
    settings = service / "contextos.toml"
    settings.write_text('unsafe = ["unsafe_memory_store"]\n' + settings.read_text("utf-8"), "utf-8")
    refused = say("apply", "--by", "otto", "--key", "keys/otto.key")
    assert (refused.code, "/unsafe" in refused.err) == (2, True)
