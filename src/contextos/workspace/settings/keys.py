"""The tables of `keys`: encrypted files, and a key service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from contextos.contracts.model import MAX_COUNT
from contextos.contracts.setting_types import (
    AnyText,
    Fault,
    Fits,
    PublicKeyHex,
    ServiceUrl,
    SettingTable,
    SomeText,
    String,
    Variable,
    means,
    one_of,
    secret_faults,
    tables,
    whole,
)
from contextos.trust.seal import PURPOSES

MAX_PORT_TIMEOUT_S: Final = 60


def _is_below(name: str) -> bool:
    return not name.startswith("/") and ".." not in name.split("/") and not set(name) & set("?#\\")


@dataclass(frozen=True, slots=True)
class Pkcs8KeysSetting(SettingTable):
    """Keys in encrypted files, with a passphrase that is in a file or an environment variable."""

    kind: ClassVar[str] = "pkcs8"

    path: Annotated[SomeText, means("the directory with `runtime.json` and the encrypted files")] = "keys"
    passphrase_file: Annotated[AnyText, means("the file that holds the passphrase; only its owner can read it")] = ""
    passphrase_env: Annotated[
        Variable, means("the environment variable that holds it; exactly one of the two is given")
    ] = ""

    def faults(self) -> Iterator[Fault]:
        return secret_faults(self, "passphrase")


@dataclass(frozen=True, slots=True)
class RemoteKeySetting(SettingTable):
    """A key of a key service, which is pinned by its public half."""

    purpose: Annotated[String, one_of(PURPOSES, "a purpose"), means("what the key signs")]
    name: Annotated[
        SomeText,
        Fits("this is not a resource below the URL", "name it as the key service does", _is_below),
        means("its name below the URL"),
    ]
    public_key: Annotated[PublicKeyHex, means("the 32 bytes of its public half, in hex")]
    retired_at_us: Annotated[
        int, whole(0, MAX_COUNT, "Unix microseconds after which nothing that it signs counts (0: it signs)")
    ] = 0


@dataclass(frozen=True, slots=True)
class RemoteKeysSetting(SettingTable):
    """Keys of a key service over HTTP."""

    kind: ClassVar[str] = "remote"

    url: Annotated[ServiceUrl, means("where the keys are resources; `https://`, or `http://` on this machine")]
    keys: Annotated[
        tuple[RemoteKeySetting, ...],
        tables("keys.keys", "the pinned keys; of one purpose the first that is not retired signs", least=1),
    ]
    token_file: Annotated[AnyText, means("the file with the bearer token, read for each request")] = ""
    token_env: Annotated[Variable, means("the environment variable that holds it; without both no token is sent")] = ""
    timeout_s: Annotated[int, whole(1, MAX_PORT_TIMEOUT_S, "seconds after which a request is given up")] = 5

    def faults(self) -> Iterator[Fault]:
        return secret_faults(self, "token", required=False)
