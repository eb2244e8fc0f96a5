"""The table `telemetry`: what is measured and where it is sent, for all tenants and for each tenant by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from urllib.parse import unquote

from contextos.contracts.setting_types import (
    AnyNumber,
    AnyServiceUrl,
    AnyText,
    Fault,
    Fits,
    Flag,
    SettingTable,
    String,
    TableKey,
    Variable,
    matches,
    means,
    one_of,
    secret_faults,
    settings_of,
    table_by,
    whole,
)
from contextos.workspace.settings.keys import MAX_PORT_TIMEOUT_S
from contextos.workspace.settings.reading import invalid_setting

EXPORTERS: Final = ("otlp", "none")
MAX_HEADERS: Final = 32
_SERVICE_NAME: Final = re.compile(r"[A-Za-z0-9_.:/@#+-]{1,128}")
_URL: Final = re.compile(r"(?:https?://[a-z0-9][a-z0-9.:-]*(?:/[!-\"$->@-~]*)?)?")
_HEADER: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]{0,4094}[!-~])?")
_MESSAGE_HEADERS: Final = re.compile(
    r"host|connection|keep-alive|te|trailer|upgrade|expect|content-.*|.*-encoding|proxy-.*"
)
"""Headers about the transport and the content of a message. The exporter writes them, so settings cannot."""
_COLLECTOR: Final = Fits("this is not the URL of a collector", "write `https://host/path` in ASCII", _URL.fullmatch)


@dataclass(frozen=True, slots=True)
class CollectorSetting(SettingTable):
    """Where the telemetry of one tenant goes, and nowhere else."""

    exporter: Annotated[
        String,
        one_of(EXPORTERS, "an exporter"),
        means("`otlp`, or `none`: nothing of this tenant is sent, to no collector"),
    ] = EXPORTERS[0]
    otlp_url: Annotated[AnyText, _COLLECTOR, means("the base URL of the tenant's OTLP collector over HTTP")] = ""
    internal: Annotated[
        Flag, means("a person said that it is at a loopback or private address; on the loopback it can be `http://`")
    ] = False
    token_file: Annotated[AnyText, means("the file with its bearer token, read at start")] = ""
    token_env: Annotated[Variable, means("the environment variable that holds it")] = ""
    headers_file: Annotated[AnyText, means("the file with further headers, as above")] = ""
    headers_env: Annotated[Variable, means("the environment variable that holds them")] = ""

    def faults(self) -> Iterator[Fault]:
        if self.exporter == "none":
            detail, remedy = "the exporter `none` sends nothing", "leave it out, or use `otlp`"
            yield from _unused_faults(self, ("exporter",), detail, remedy)
        elif not self.otlp_url:
            yield Fault(("otlp_url",), _COLLECTOR.detail, "write `https://host/path` in ASCII")
        elif self.otlp_url.startswith("http://") and not self.internal:
            yield Fault(("otlp_url",), "the connection is not encrypted", "write `https://`")
        yield from secret_faults(self, "token", required=False)
        yield from secret_faults(self, "headers", required=False)


@dataclass(frozen=True, slots=True)
class TelemetrySetting(SettingTable):
    """What a deployment reports to OpenTelemetry. Without a collector there are only the metrics for Prometheus."""

    otlp_url: Annotated[
        AnyServiceUrl,
        means(
            "the base URL of an OTLP collector over HTTP, for every tenant that `tenants` does not list; `https://`, "
            "or `http://` on this machine; empty: of these tenants nothing is sent, and there are only the metrics "
            "for Prometheus"
        ),
    ] = ""
    service_name: Annotated[
        String,
        matches(_SERVICE_NAME, "this is not a name of a service", "write it like `contextos-prod`"),
        means("`service.name` of all that is sent"),
    ] = "contextos"
    sample_share: Annotated[
        AnyNumber,
        Fits("this is not a share", "give a number from 0 to 1", lambda share: 0 <= share <= 1),
        means(
            "the share of traces, from 0 to 1, of runs without a gate, a failure, an incident and a call that can "
            "have an effect; all others are always sent"
        ),
    ] = 1.0
    metrics_interval_s: Annotated[int, whole(1, 3_600, "seconds between two sendings of the metrics")] = 60
    timeout_s: Annotated[int, whole(1, MAX_PORT_TIMEOUT_S, "seconds after which a sending is given up")] = 5
    token_file: Annotated[AnyText, means("the file with the bearer token of the collector, read at start")] = ""
    token_env: Annotated[Variable, means("the environment variable that holds it; without both no token is sent")] = ""
    headers_file: Annotated[
        AnyText, means("the file with further headers (`name=value,…` in percent-encoding), read at start")
    ] = ""
    headers_env: Annotated[Variable, means("the environment variable that holds them")] = ""
    tenants: Annotated[
        Mapping[TableKey, CollectorSetting],
        table_by("write `[telemetry.tenants.<tenant>]`"),
        means("the collectors that are of one tenant each: `[telemetry.tenants.<tenant>]`"),
    ] = field(default_factory=dict)

    @property
    def sends(self) -> bool:
        """Whether anything is sent to a collector."""
        return bool(self.otlp_url) or any(collector.exporter != "none" for collector in self.tenants.values())

    def faults(self) -> Iterator[Fault]:
        if not self.otlp_url:
            fields = ("sample_share", "metrics_interval_s", "timeout_s") if self.sends else ()
            detail, remedy = "nothing is sent without `otlp_url`", "name the collector, or leave it out"
            yield from _unused_faults(self, ("service_name", "tenants", *fields), detail, remedy)
        yield from secret_faults(self, "token", required=False)
        yield from secret_faults(self, "headers", required=False)


def _unused_faults(table: SettingTable, used_names: tuple[str, ...], detail: str, remedy: str) -> Iterator[Fault]:
    """Yield a fault for every value that nothing would use."""
    kind: Any = type(table)
    for setting, _ in settings_of(kind):
        if setting.name not in used_names and getattr(table, setting.name) != setting.default:
            yield Fault((setting.name,), detail, remedy)


def parsed_headers(text: str, at: str) -> dict[str, str]:
    """Return the headers of a text like `x-api-key=secret,x-scope=acme`, the form of `OTEL_EXPORTER_OTLP_HEADERS`:
    values are percent-encoded. Raises `InvalidSettings`, which shows no value.
    """
    headers: dict[str, str] = {}
    for number, part in enumerate(text.strip().split(","), 1):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        value = unquote(value) if value.isascii() else ""
        if not equals or not _HEADER.fullmatch(name.lower()) or not _HEADER_VALUE.fullmatch(value):
            raise invalid_setting(
                at,
                "bad_setting",
                f"header {number} is not `name=value`",
                "write it like `x-api-key=secret`, apart by commas",
            )
        if _MESSAGE_HEADERS.fullmatch(name.lower()) or name.lower() in headers or number > MAX_HEADERS:
            detail = f"header {number} is there already, is one that the exporter writes, or one of too many"
            raise invalid_setting(
                at, "bad_setting", detail, f"send at most {MAX_HEADERS} headers of your own, each once"
            )
        headers[name.lower()] = value
    return headers
