"""What a slot can take is looked up for its caller in the directory."""

from __future__ import annotations

from tests.http_face import HttpFace
from tests.unit.service.operations.test_slots import SLOT, asking

__all__ = ["asking"]


def test_what_a_slot_can_take_is_what_the_directory_lets_the_caller_see(asking: HttpFace) -> None:
    query = {"slot": SLOT, "agent": "agt_support"}
    found = asking.send("POST", "/v1/slots/resolve", json=query)
    assert [one["title"] for one in found.json()["manifest"]] == ["<script>"], found.text
    for changed, status in (
        ({**query, "agent": "agt_nobody"}, 403),
        ({**query, "slot": {**SLOT, "slotId": 5}}, 422),
        ({**query, "project_id": "a b"}, 422),
        ({**query, "actor": {"principal_id": "usr_772", "organization_id": "org_other"}}, 422),
    ):
        assert asking.send("POST", "/v1/slots/resolve", json=changed).status_code == status, changed
