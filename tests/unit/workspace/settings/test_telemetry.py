"""The setting `[telemetry]`: each value is enforced, or refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings import Settings, check_settings
from contextos.workspace.settings.telemetry import CollectorSetting, TelemetrySetting

URL = 'otlp_url = "http://127.0.0.1:4318"\n'


def read(tmp_path: Path, text: str) -> TelemetrySetting | None:
    (tmp_path / "contextos.toml").write_text(text)
    return Settings.read(tmp_path).telemetry


def test_without_the_table_nothing_is_reported(tmp_path: Path) -> None:
    assert read(tmp_path, "") is None


def test_an_empty_table_is_the_metrics_for_prometheus(tmp_path: Path) -> None:
    assert read(tmp_path, "[telemetry]\n") == TelemetrySetting()


def test_a_whole_table_is_read(tmp_path: Path) -> None:
    more = (
        'service_name = "shop"\nsample_share = 0.1\nmetrics_interval_s = 15\ntimeout_s = 2\ntoken_env = "OTLP_TOKEN"\n'
    )
    made = read(tmp_path, f"[telemetry]\n{URL}{more}")
    assert made == TelemetrySetting("http://127.0.0.1:4318", "shop", 0.1, 15, 2, token_env="OTLP_TOKEN")


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("telemetry = 1", "/telemetry"),
        ("[telemetry]\nurl = 'x'", "/telemetry/url"),
        ("[telemetry]\notlp_url = 'collector:4318'", "/telemetry/otlp_url"),
        ("[telemetry]\notlp_url = 'http://collector.example'", "/telemetry/otlp_url"),
        ("[telemetry]\notlp_url = 'https://me:pw@collector.example'", "/telemetry/otlp_url"),
        ("[telemetry]\nservice_name = ''", "/telemetry/service_name"),
        ("[telemetry]\nservice_name = 'two words'", "/telemetry/service_name"),
        (f"[telemetry]\n{URL}sample_share = 1.01", "/telemetry/sample_share"),
        (f"[telemetry]\n{URL}sample_share = -0.1", "/telemetry/sample_share"),
        (f"[telemetry]\n{URL}sample_share = nan", "/telemetry/sample_share"),
        (f"[telemetry]\n{URL}sample_share = true", "/telemetry/sample_share"),
        (f"[telemetry]\n{URL}metrics_interval_s = 0", "/telemetry/metrics_interval_s"),
        (f"[telemetry]\n{URL}timeout_s = 61", "/telemetry/timeout_s"),
        (f"[telemetry]\n{URL}timeout_s = 1.5", "/telemetry/timeout_s"),
        (f"[telemetry]\n{URL}token_env = 'not a name'", "/telemetry/token_env"),
        (f"[telemetry]\n{URL}token_env = 3", "/telemetry/token_env"),
        (f"[telemetry]\n{URL}token_file = 3", "/telemetry/token_file"),
        (f"[telemetry]\n{URL}token_file = 'a'\ntoken_env = 'A'", "/telemetry"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, text: str, pointer: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(tmp_path, text)
    assert refused.value.problems[0].pointer == pointer


@pytest.mark.parametrize(
    "text", ["sample_share = 0.5", "metrics_interval_s = 5", "timeout_s = 1", "token_env = 'A'", "token_file = 'a'"]
)
def test_what_nothing_would_use_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSettings, match="nothing is sent without `otlp_url`"):
        read(tmp_path, f"[telemetry]\n{text}")


def test_a_setting_that_was_built_by_hand_is_held_to_the_same(tmp_path: Path) -> None:

    settings = Settings(tmp_path)
    check_settings(replace(settings, telemetry=TelemetrySetting("https://collector.example")))
    for wrong in ("https://collector.example", TelemetrySetting(otlp_url="ftp://x")):
        with pytest.raises(InvalidSettings):
            check_settings(replace(settings, telemetry=wrong))  # type: ignore[arg-type]


OWN = "[telemetry.tenants.acme]\n"


def test_the_collector_of_a_tenant_is_read(tmp_path: Path) -> None:
    more = f'{OWN}otlp_url = "https://otlp.acme.example"\ninternal = true\nheaders_env = "ACME_HEADERS"\n'
    made = read(tmp_path, f"[telemetry]\nsample_share = 0.5\n{more}[telemetry.tenants.other]\nexporter = 'none'\n")
    assert made is not None
    assert made.tenants == {
        "acme": CollectorSetting(otlp_url="https://otlp.acme.example", internal=True, headers_env="ACME_HEADERS"),
        "other": CollectorSetting(exporter="none"),
    }
    assert (made.sends, made.otlp_url) == (True, "")


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("[telemetry]\ntenants = 1", "/telemetry/tenants"),
        ("[telemetry.tenants]\nacme = 1", "/telemetry/tenants/acme"),
        (f"{OWN}url = 'x'", "/telemetry/tenants/acme/url"),
        (OWN, "/telemetry/tenants/acme/otlp_url"),
        (f"{OWN}exporter = 'zipkin'", "/telemetry/tenants/acme/exporter"),
        (f"{OWN}exporter = 'none'\notlp_url = 'https://a.example'", "/telemetry/tenants/acme/otlp_url"),
        (f"{OWN}otlp_url = 'https://a.example'\ninternal = 1", "/telemetry/tenants/acme/internal"),
        (f"{OWN}otlp_url = 'https://a.example'\nheaders_env = 'a b'", "/telemetry/tenants/acme/headers_env"),
        (f"{OWN}otlp_url = 'https://a.example'\nheaders_env = 'A'\nheaders_file = 'a'", "/telemetry/tenants/acme"),
        ("[telemetry]\nheaders_env = 'A'", "/telemetry/headers_env"),
        ("[telemetry]\nsample_share = 0.5\n[telemetry.tenants.a]\nexporter = 'none'", "/telemetry/sample_share"),
    ],
)
def test_a_collector_of_a_tenant_that_is_none_is_refused_by_name(tmp_path: Path, text: str, pointer: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(tmp_path, text)
    assert pointer in [one.pointer for one in refused.value.problems]
