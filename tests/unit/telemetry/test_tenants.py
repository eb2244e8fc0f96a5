"""`TelemetryOfTenants`: a run goes to the telemetry of its tenant. Over real collectors:
`tests/attacks/test_g133_telemetry_is_a_tenants.py`.
"""

from __future__ import annotations

from contextos.telemetry.exporter import Telemetry, otlp
from contextos.telemetry.tenants import TelemetryOfTenants
from tests.otlp import collecting
from tests.unit.telemetry import runs
from tests.world import TENANT


def test_a_run_and_a_replay_go_to_the_telemetry_of_their_tenant_and_to_no_other() -> None:
    with collecting() as others, collecting() as own:
        made = TelemetryOfTenants(Telemetry(otlp(others.url)), {TENANT: Telemetry(otlp(own.url))})
        made.run_ended(*runs.account("small"))
        made.run_replayed("tenant_b", equal=True)
        made.flush()
        text = made.prometheus_text().decode()
        of_one = made.prometheus_text("tenant_b").decode()
        made.close()
    assert (len(own.named("invoke_agent agt_support")), others.spans) == (1, [])
    assert "contextos.replays" in {one.name for one in others.metrics}
    assert "contextos.replays" not in {one.name for one in own.metrics}
    assert text.count("# TYPE target_info gauge") == 1
    assert "contextos_replays_total" in text
    assert "contextos_run_tokens_total" in text
    assert (TENANT in text, TENANT in of_one) == (True, False)
