"""A lease without heartbeats has no field of them, so its bytes are those of a plain lease."""

from __future__ import annotations

import orjson

from contextos.contracts.documents.runs import LEASES, Lease


def test_fields_of_heartbeats_are_left_out_where_there_are_none() -> None:
    plain, beating = (LEASES.write("run_1", 0, lease).body for lease in (Lease("me", 9), Lease("me", 9, 1, 5)))
    assert orjson.loads(plain or b"") == {"owner": "me", "until_us": 9}
    assert orjson.loads(beating or b"") == {"owner": "me", "until_us": 9, "at_us": 1, "silent_until_us": 5}
