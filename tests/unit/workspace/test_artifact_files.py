"""Profiles and routing rules in the files of a workspace: `apply` signs and publishes them before the pack that names
them, publishes nothing that lint refuses, and signs nothing in a service.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from contextos.contracts.envelopes.models import ModelProfile
from contextos.control.artifacts import PROFILE_TYPE
from contextos.errors import InvalidSettings
from contextos.trust.seal import KeyRing
from contextos.workspace.artifact_files import UnsignedArtifact
from contextos.workspace.settings import Settings
from tests.modelled import profile, rules
from tests.unit.cli.conftest import say

__all__ = ["say"]
BY = ("--by", "otto", "--key", "keys/otto.key", "--json")
OF_ACME: dict[str, Any] = {"tenant": "acme"}
REMOTE = profile(wire="openai", endpoint="https://api.models.example/v1", **OF_ACME)


@pytest.fixture
def deployed(say: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line in a workspace that `init` made, before anything was applied."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert say("init", str(tmp_path / "w")).code == 0
    monkeypatch.chdir(tmp_path / "w")
    return say


def write(name: str, document: Mapping[str, Any]) -> str:
    path = Path("packs") / name
    path.write_text(yaml.safe_dump(dict(document), sort_keys=False), "utf-8")
    return str(path)


def refused(said: Any) -> list[tuple[str, str]]:
    assert said.code == 2, said
    problems = said.json["problems"] if "problems" in said.json else said.json["error"]["problems"]
    return [(one["code"], one["pointer"]) for one in problems]


def published(say: Any) -> set[str]:
    return {one["ref"] for one in say("pack", "published", "--json").json["artifacts"]}


def test_apply_publishes_profiles_before_the_rules_that_name_them_and_once(deployed: Any) -> None:
    write("a_rules.yaml", rules() | OF_ACME)
    write("z_profile.yaml", profile(**OF_ACME))
    said = deployed("apply", *BY)
    done = ["published model.large@1.0.0", "published routing.support@1.0.0", "published acme.deploy@1.0.0"]
    assert said.json["done"][:3] == done
    assert deployed("apply", *BY).json["done"] == []
    assert {one.removeprefix("published ") for one in done} == published(deployed)
    document = deployed("pack", "published", "routing.support@1.0.0", "--json").json["document"]
    assert document == rules() | OF_ACME


def test_a_signed_file_beside_the_yaml_is_one_artifact(deployed: Any) -> None:
    file = write("profile.yaml", profile(**OF_ACME))
    assert deployed("apply", *BY).code == 0
    signed = deployed("pack", "sign", file, "--key", "keys/otto.key", "--out", "signed.json")
    assert (signed.code, '"payloadType"' in Path("signed.json").read_text("utf-8")) == (0, True)


@pytest.mark.parametrize(
    ("documents", "code", "place"),
    [
        ([REMOTE], "egress_not_allowed", "/endpoint"),
        ([rules() | OF_ACME], "not_published", "/rules/0/candidates/0/profile"),
        ([profile(**OF_ACME), rules(operation="embed") | OF_ACME], "never_eligible", "/rules/0/candidates/0/profile"),
        ([{**REMOTE, "prices": {**REMOTE["prices"], "prices": {"input": "3"}}}], "value_error", ""),
        ([{**REMOTE, "endpoint": "https://API.models.example/v1?key=1"}], "string_pattern_mismatch", "/endpoint"),
        ([{**REMOTE, "endpoint": "https://API.models.example/v1"}], "value_error", ""),
    ],
)
def test_what_lint_refuses_is_refused_by_lint_and_apply_and_nothing_is_published(
    documents: list[dict[str, Any]], code: str, place: str, deployed: Any
) -> None:
    files = [write(f"{number}.yaml", one) for number, one in enumerate(documents)]
    for said in (deployed("pack", "lint", "--adapters", *files, "--json"), deployed("apply", *BY)):
        assert (code, place) in refused(said), said
    assert published(deployed) == set()


def test_an_endpoint_of_the_list_is_published_and_a_withdrawn_profile_is_named_by_no_new_rules(deployed: Any) -> None:
    settings = Path("contextos.toml")
    settings.write_text(settings.read_text("utf-8") + '\n[egress]\nacme = ["api.models.example"]\n', "utf-8")
    write("profile.yaml", REMOTE)
    assert deployed("apply", *BY).code == 0
    version = str(deployed("pack", "list", "--json").json["version"])
    assert deployed("pack", "retire", "model.large@1.0.0", "--expect", version, *BY).code == 0
    write("rules.yaml", rules() | OF_ACME)
    lint = deployed("pack", "lint", "--adapters", "packs/rules.yaml", "--json")
    assert refused(lint) == [("not_published", "/rules/0/candidates/0/profile")]


def test_lint_without_a_workspace_reads_rules_with_the_profiles_beside_them(deployed: Any) -> None:
    alone = write("rules.yaml", rules(operation="embed") | OF_ACME)
    beside = write("profile.yaml", profile(**OF_ACME))
    assert deployed("pack", "lint", alone, "--json").code == 0
    said = deployed("pack", "lint", alone, beside, "--json")
    assert refused(said) == [("never_eligible", "/rules/0/candidates/0/profile")]
    assert "line 8" in said.json["problems"][0]["detail"]


def test_a_service_signs_no_profile(tmp_path: Path) -> None:
    document = profile(**OF_ACME)
    one = UnsignedArtifact(PROFILE_TYPE, document, ModelProfile.model_validate(document))
    keys = KeyRing.from_seed(b"0" * 32)
    assert one.signed(Settings(tmp_path), keys)["payloadType"] == PROFILE_TYPE
    with pytest.raises(InvalidSettings, match="nobody signed"):
        one.signed(Settings(tmp_path, profile="service"), keys)
