"""The setting `[telemetry]`: what is measured, and where it is sent.

Refuses a name that is not listed, a value out of bounds, and one that nothing would use.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any, Final

from contextos.contracts.facts import name_remedy
from contextos.errors import InvalidSettings, Problem
from contextos.port_settings.checks import MAX_PORT_TIMEOUT_S, check_https

BOUNDS_S: Final = {"metrics_interval_s": (1, 3_600), "timeout_s": (1, MAX_PORT_TIMEOUT_S)}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SERVICE_NAME: Final = re.compile(r"[A-Za-z0-9_.:/@#+-]{1,128}")


@dataclass(frozen=True, slots=True)
class TelemetrySetting:
    """What a deployment reports to OpenTelemetry. Without `otlp_url` there are only the metrics for Prometheus.

    `otlp_url` is the base URL of an OTLP collector over HTTP. `sample_share` is the share of traces, from 0 to 1, of
    runs that had no gate, no failure, no incident and no call with an effect; all others are always exported.
    `timeout_s` bounds each export, and `metrics_interval_s` is how often metrics are sent, in seconds. At most one of
    `token_file` and `token_env` names the bearer token of the collector, which is read at start.
    """

    otlp_url: str = ""
    service_name: str = "contextos"
    sample_share: float = 1.0
    metrics_interval_s: int = 60
    timeout_s: int = 5
    token_file: str = ""
    token_env: str = ""

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        if not isinstance(self.service_name, str) or not _SERVICE_NAME.fullmatch(self.service_name):
            raise _bad(f"{at}/service_name", "this is not a name of a service", "write it like `contextos-prod`")
        if not self.otlp_url:
            for one in fields(self):
                if one.name not in ("otlp_url", "service_name") and getattr(self, one.name) != one.default:
                    detail = "nothing is sent without `otlp_url`"
                    raise _bad(f"{at}/{one.name}", detail, "name the collector, or leave it out")
            return
        check_https(self.otlp_url, f"{at}/otlp_url")
        share = self.sample_share
        if type(share) not in (int, float) or not math.isfinite(share) or not 0 <= share <= 1:
            raise _bad(f"{at}/sample_share", "this is not a share", "give a number from 0 to 1")
        for name, (least, most) in BOUNDS_S.items():
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                detail = f"this is not a whole number of seconds from {least} to {most}"
                raise _bad(f"{at}/{name}", detail, "give one within these bounds")
        self._check_token(at)

    def _check_token(self, at: str) -> None:
        if self.token_file and self.token_env:
            detail = "the token comes from one of `token_file` and `token_env`"
            raise _bad(at, detail, "name the one that holds it; the secret itself has no place in the settings")
        if not isinstance(self.token_file, str) or "\0" in self.token_file:
            raise _bad(f"{at}/token_file", "this is not a path", "give a text")
        if self.token_env != "" and not (isinstance(self.token_env, str) and _VARIABLE.fullmatch(self.token_env)):
            raise _bad(
                f"{at}/token_env", "this is not the name of an environment variable", "write it like `OTLP_TOKEN`"
            )


def read_telemetry(value: Any) -> TelemetrySetting:
    """Return the table `telemetry` of `contextos.toml`. Raises `InvalidSettings`."""
    known = [one.name for one in fields(TelemetrySetting)]
    if not isinstance(value, dict):
        raise _bad("/telemetry", "this is not a table", f"give a table of {', '.join(known)}")
    for name in value.keys() - set(known):
        raise InvalidSettings(
            Problem(
                f"/telemetry/{name[:80]}", "unknown_setting", "this is not a setting here", name_remedy(name, known)
            )
        )
    return TelemetrySetting(**value)


def check_telemetry(value: Any) -> None:
    """Check the setting `telemetry`, however it was made; None is no telemetry. Raises `InvalidSettings`."""
    if value is None:
        return
    if not isinstance(value, TelemetrySetting):
        raise _bad("/telemetry", "this is not a `TelemetrySetting`", "give one, or None")
    value.check("/telemetry")


def _bad(at: str, detail: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(Problem(at, "bad_setting", detail, remedy))
