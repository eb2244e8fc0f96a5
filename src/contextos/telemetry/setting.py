"""The setting `[telemetry]`: what is measured, and where it is sent, of all tenants and of each by itself.

Refuses a name that is not listed, a value out of bounds, and one that nothing would use.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final
from urllib.parse import unquote

from contextos.contracts.facts import name_remedy
from contextos.errors import InvalidSettings, Problem
from contextos.port_settings.checks import MAX_PORT_TIMEOUT_S, bad, check_https, check_internal, fitting

BOUNDS_S: Final = {"metrics_interval_s": (1, 3_600), "timeout_s": (1, MAX_PORT_TIMEOUT_S)}
EXPORTERS: Final = ("otlp", "none")
MAX_HEADERS: Final = 32
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SERVICE_NAME: Final = re.compile(r"[A-Za-z0-9_.:/@#+-]{1,128}")
_URL: Final = re.compile(r"https?://[a-z0-9][a-z0-9.:-]*(/[!-~]*)?")
_HEADER: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]{0,4094}[!-~])?")
_OF_THE_MESSAGE: Final = re.compile(
    r"host|connection|keep-alive|te|trailer|upgrade|expect|content-.*|.*-encoding|proxy-.*"
)
"""Headers that say how a message travels and what is in it. The exporter writes them."""
_SECRETS: Final = ("token", "headers")


@dataclass(frozen=True, slots=True)
class CollectorSetting:
    """Where the telemetry of one tenant goes, and nowhere else.

    `exporter` is `otlp`, or `none`: what this tenant does is sent to nobody, also where there is a collector for all.
    `otlp_url`, the token and the headers are as those of `TelemetrySetting`. `internal`: a person said that the URL is
    at a loopback or private address.
    """

    exporter: str = EXPORTERS[0]
    otlp_url: str = ""
    internal: bool = False
    token_file: str = ""
    token_env: str = ""
    headers_file: str = ""
    headers_env: str = ""

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        if self.exporter not in EXPORTERS:
            raise bad(f"{at}/exporter", "this is not an exporter", f"use one of {', '.join(EXPORTERS)}")
        check_internal(self.internal, at)
        if self.exporter == "none":
            _check_unused(self, ("exporter",), at, "the exporter `none` sends nothing", "leave it out, or use `otlp`")
            return
        if not isinstance(self.otlp_url, str) or not _URL.fullmatch(self.otlp_url) or set(self.otlp_url) & set("?#"):
            raise bad(f"{at}/otlp_url", "this is not the URL of a collector", "write `https://host/path` in ASCII")
        if self.otlp_url.startswith("http://") and not self.internal:
            raise bad(f"{at}/otlp_url", "the connection is not encrypted", "write `https://`")
        _check_secrets(self, at)


@dataclass(frozen=True, slots=True)
class TelemetrySetting:
    """What a deployment reports to OpenTelemetry. Without `otlp_url` there are only the metrics for Prometheus.

    `otlp_url` is the base URL of an OTLP collector over HTTP. `sample_share` is the share of traces, from 0 to 1, of
    runs that had no gate, no failure, no incident and no call with an effect; all others are always exported.
    `timeout_s` bounds each export, and `metrics_interval_s` is how often metrics are sent, in seconds. At most one of
    `token_file` and `token_env` names the bearer token of the collector, which is read at start, and of `headers_file`
    and `headers_env` the headers that are sent to it, as `name=value,…` with values in percent-encoding.

    `otlp_url` is the collector of every tenant that `tenants` does not list, so that one receiver sees all of them.
    `tenants` has the collectors that are of one tenant each.
    """

    otlp_url: str = ""
    service_name: str = "contextos"
    sample_share: float = 1.0
    metrics_interval_s: int = 60
    timeout_s: int = 5
    token_file: str = ""
    token_env: str = ""
    headers_file: str = ""
    headers_env: str = ""
    tenants: Mapping[str, CollectorSetting] = field(default_factory=dict)

    @property
    def sends(self) -> bool:
        """Whether anything is sent to a collector."""
        return bool(self.otlp_url) or any(one.exporter != "none" for one in self.tenants.values())

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        self._check_tenants(f"{at}/tenants")
        if not isinstance(self.service_name, str) or not _SERVICE_NAME.fullmatch(self.service_name):
            raise bad(f"{at}/service_name", "this is not a name of a service", "write it like `contextos-prod`")
        if not self.otlp_url:
            used = ("service_name", "tenants", *(("sample_share", *BOUNDS_S) if self.sends else ()))
            _check_unused(self, used, at, "nothing is sent without `otlp_url`", "name the collector, or leave it out")
        else:
            check_https(self.otlp_url, f"{at}/otlp_url")
            _check_secrets(self, at)
        share = self.sample_share
        if type(share) not in (int, float) or not math.isfinite(share) or not 0 <= share <= 1:
            raise bad(f"{at}/sample_share", "this is not a share", "give a number from 0 to 1")
        for name, (least, most) in BOUNDS_S.items():
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                detail = f"this is not a whole number of seconds from {least} to {most}"
                raise bad(f"{at}/{name}", detail, "give one within these bounds")

    def _check_tenants(self, at: str) -> None:
        if not isinstance(self.tenants, Mapping):
            raise bad(at, "this is not a table", "write `[telemetry.tenants.<tenant>]`")
        for tenant, one in self.tenants.items():
            if not isinstance(tenant, str) or not tenant or not isinstance(one, CollectorSetting):
                raise bad(f"{at}/{str(tenant)[:80]}", "this is not a `CollectorSetting`", "give one for each tenant")
            one.check(f"{at}/{tenant[:80]}")


def parsed_headers(text: str, at: str) -> dict[str, str]:
    """Return the headers of a text like `x-api-key=secret,x-scope=acme`, as `OTEL_EXPORTER_OTLP_HEADERS` has it: values
    are in percent-encoding. Raises `InvalidSettings`, which shows no value.
    """
    found: dict[str, str] = {}
    for number, part in enumerate(text.strip().split(","), 1):
        name, equals, value = (one.strip() for one in part.partition("="))
        value = unquote(value) if value.isascii() else ""
        if not equals or not _HEADER.fullmatch(name.lower()) or not _HEADER_VALUE.fullmatch(value):
            raise bad(at, f"header {number} is not `name=value`", "write it like `x-api-key=secret`, apart by commas")
        if _OF_THE_MESSAGE.fullmatch(name.lower()) or name.lower() in found or number > MAX_HEADERS:
            detail = f"header {number} is there already, is one that the exporter writes, or one of too many"
            raise bad(at, detail, f"send at most {MAX_HEADERS} headers of your own, each once")
        found[name.lower()] = value
    return found


def read_telemetry(value: Any) -> TelemetrySetting:
    """Return the table `telemetry` of `contextos.toml`. Raises `InvalidSettings`."""
    known = [one.name for one in fields(TelemetrySetting)]
    if not isinstance(value, dict):
        raise bad("/telemetry", "this is not a table", f"give a table of {', '.join(known)}")
    for name in value.keys() - set(known):
        raise InvalidSettings(
            Problem(
                f"/telemetry/{name[:80]}", "unknown_setting", "this is not a setting here", name_remedy(name, known)
            )
        )
    tenants = value.get("tenants", {})
    if not isinstance(tenants, dict):
        raise bad("/telemetry/tenants", "this is not a table", "write `[telemetry.tenants.<tenant>]`")
    own = {
        name: CollectorSetting(**fitting(CollectorSetting, one, f"/telemetry/tenants/{name[:80]}"))
        for name, one in tenants.items()
    }
    return TelemetrySetting(**{**value, "tenants": own})


def check_telemetry(value: Any) -> None:
    """Check the setting `telemetry`, however it was made; None is no telemetry. Raises `InvalidSettings`."""
    if value is None:
        return
    if not isinstance(value, TelemetrySetting):
        raise bad("/telemetry", "this is not a `TelemetrySetting`", "give one, or None")
    value.check("/telemetry")


def _check_unused(one: Any, used: tuple[str, ...], at: str, detail: str, remedy: str) -> None:
    """Refuse every value that nothing would use."""
    for each in fields(one):
        if each.name not in used and getattr(one, each.name) != each.default:
            raise bad(f"{at}/{each.name}", detail, remedy)


def _check_secrets(one: TelemetrySetting | CollectorSetting, at: str) -> None:
    for what in _SECRETS:
        file, variable = getattr(one, f"{what}_file"), getattr(one, f"{what}_env")
        if file and variable:
            detail = f"`{what}_file` and `{what}_env` are both named"
            raise bad(at, detail, "name the one that holds it; the secret itself has no place in the settings")
        if not isinstance(file, str) or "\0" in file:
            raise bad(f"{at}/{what}_file", "this is not a path", "give a text")
        if variable != "" and not (isinstance(variable, str) and _VARIABLE.fullmatch(variable)):
            detail = "this is not the name of an environment variable"
            raise bad(f"{at}/{what}_env", detail, "write it like `OTLP_TOKEN`")
