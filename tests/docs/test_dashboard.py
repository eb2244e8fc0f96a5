"""The Grafana dashboard asks for metrics and labels that exist, and for every metric there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from contextos.telemetry.exporter import Telemetry
from contextos.telemetry.measurements import INSTRUMENTS
from tests.unit.telemetry import runs

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "assets" / "grafana-dashboard.json"
METRIC = re.compile(r"\bcontextos_[a-z_]+(?=\{|\[)|(?<=label_values\()[a-z_]+")
SELECTED = re.compile(r"([a-z_]+)(?:=~|!~|!=|=)\"")
GROUPED = re.compile(r"\bby \(([^)]*)\)")


@cache
def there_is() -> dict[str, set[str]]:
    """The labels of each sample that a process shows after runs of every kind, by its name."""
    telemetry = Telemetry()
    for name in ("small", "approved", "denied", "reopened", "planned"):
        telemetry.run_ended(*runs.account(name))
    telemetry.run_replayed("tenant_acme_prod", equal=True)
    telemetry._dropped["tenant_acme_prod"] += 1
    telemetry.flush()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(telemetry.prometheus_text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    telemetry.close()
    return found


def questions() -> Iterator[tuple[str, str]]:
    """Each expression of the dashboard, and its legend."""
    board: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"], ""


def test_every_metric_and_label_of_the_dashboard_exists() -> None:
    asked = 0
    for expression, legend in questions():
        metrics = set(METRIC.findall(expression))
        assert metrics, expression
        assert metrics <= there_is().keys(), expression
        labels = set(SELECTED.findall(expression)) | set(re.findall(r"\{\{([a-z_]+)\}\}", legend))
        labels |= set(re.findall(r"label_values\([a-z_]+, ([a-z_]+)\)", expression))
        labels |= {one.strip() for group in GROUPED.findall(expression) for one in group.split(",")}
        for metric in metrics:
            assert labels <= there_is()[metric], (metric, labels - there_is()[metric])
        asked += 1
    assert asked > len(INSTRUMENTS)


def test_every_metric_is_on_the_dashboard() -> None:
    asked = {metric for expression, _ in questions() for metric in METRIC.findall(expression)}
    stems = {re.sub(r"_(bucket|count|sum|total)$", "", one) for one in asked}
    shown = {re.sub(r"_(bucket|count|sum|total|created)$", "", one) for one in there_is() if one != "target_info"}
    assert shown == stems
    assert len(shown) == len(INSTRUMENTS)


def test_the_page_names_every_metric() -> None:
    page = (DASHBOARD.parents[1] / "watch.md").read_text("utf-8")
    assert [name for name in INSTRUMENTS if f"`{name}`" not in page] == []
