"""`GET /metrics` has the metrics of the caller's tenant, for who holds a role for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, begin_refunds, http_face

SCRAPER = "prometheus_1"


async def begin_measured(path: Path) -> None:
    await begin_refunds(path)
    toml = path / "contextos.toml"
    toml.write_text(toml.read_text("utf-8") + "\n[telemetry]\n", "utf-8")
    listed = json.loads((path / "directory.json").read_text("utf-8"))
    scraper = {"approver_id": SCRAPER, "roles": ["metrics_reader"], "granted_by": {"metrics_reader": "user_cfo_1"}}
    listed[TENANT]["approvers"].append(scraper)
    (path / "directory.json").write_text(json.dumps(listed), "utf-8")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    """An API with `[telemetry]`, a run in one tenant, and a replay in the other."""
    with http_face(tmp_path_factory.mktemp("metrics"), begin_measured) as made:
        assert made.send("POST", "/v1/runs", json=made.request()).json()["ended"]
        telemetry = made.app.deployment.ports.telemetry
        telemetry.run_replayed(OTHER_TENANT, equal=False)
        telemetry.start().flush()  # type: ignore[attr-defined]
        yield made


def tenants(text: str) -> set[str | None]:
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return {one.labels.get("contextos_tenant_id") for one in samples}


def test_an_operator_reads_the_metrics_of_their_tenant_and_of_no_other(measured: HttpFace) -> None:
    answer = measured.send("GET", "/metrics", by=OPERATOR)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "contextos_run_duration_seconds_count" in answer.text
    assert tenants(answer.text) == {TENANT}
    assert OTHER_TENANT not in answer.text
    other = measured.send("GET", "/metrics", by=OPERATOR, tenant=OTHER_TENANT)
    assert tenants(other.text) == {OTHER_TENANT}
    assert "contextos_replays_total" in other.text


def test_who_may_read_metrics_alone_sees_no_run(measured: HttpFace) -> None:
    assert measured.send("GET", "/metrics", by=SCRAPER).status_code == 200
    assert measured.send("GET", "/v1/runs", by=SCRAPER).json()["items"] == []


@pytest.mark.parametrize("by", [REQUESTER, LEAD])
def test_who_has_no_role_for_it_reads_nothing(measured: HttpFace, by: str) -> None:
    answer = measured.send("GET", "/metrics", by=by)
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")


def test_nobody_reads_metrics_without_a_token(measured: HttpFace) -> None:
    assert measured.anonymous("GET", "/metrics").status_code == 401


def test_a_server_that_measures_nothing_says_so_to_who_may_ask(face: HttpFace) -> None:
    answer = face.send("GET", "/metrics", by=OPERATOR)
    assert (answer.status_code, answer.json()["code"]) == (404, "no_metrics")
    assert face.send("GET", "/metrics", by=REQUESTER).status_code == 403
