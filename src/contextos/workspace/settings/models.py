"""The table of models: the keys of providers, endpoints at private addresses, and a script in place of a provider."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from contextos.contracts.ids import EGRESS
from contextos.contracts.setting_types import (
    AnyText,
    Fault,
    Fits,
    ListOf,
    SettingTable,
    SomeText,
    String,
    Variable,
    means,
    secret_faults,
    tables,
)

_ENDPOINT: Final = f'write `["{EGRESS.example}"]`'


@dataclass(frozen=True, slots=True)
class ModelKeySetting(SettingTable):
    """The key of one provider, which profiles name as their `credential`."""

    name: Annotated[SomeText, means("the name by which profiles know it")]
    secret_file: Annotated[AnyText, means("the file with the key, read for each call")] = ""
    secret_env: Annotated[
        Variable, means("the environment variable that holds it; exactly one of the two is given")
    ] = ""

    def faults(self) -> Iterator[Fault]:
        return secret_faults(self, "secret")


@dataclass(frozen=True, slots=True)
class ModelsSetting(SettingTable):
    """How the models of published profiles are reached."""

    keys: Annotated[tuple[ModelKeySetting, ...], tables("models.keys", "the keys of providers")] = ()
    internal: Annotated[
        ListOf[Annotated[String, Fits("this is not an endpoint", _ENDPOINT, EGRESS.fits)]],
        means("endpoints (`host:port`) of providers at loopback or private addresses"),
    ] = ()
    script: Annotated[
        AnyText, means("a JSON file with the answers of `scripted` profiles (needs `unsafe_scripted_models`)")
    ] = ""

    def faults(self) -> Iterator[Fault]:
        names = [key.name for key in self.keys]
        for number, name in enumerate(names):
            if name in names[:number]:
                yield Fault(("keys", number, "name"), "another key has this name", "give each its own")
