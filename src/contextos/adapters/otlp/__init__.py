"""How telemetry reaches the collector of one tenant.

Owns the requests to a collector that is a tenant's: where they may lead, which headers they carry, and what is kept of
the answer. Does not own what is sent (`telemetry`), nor the address of the collector that is for all tenants.

Invariants, with the tests that prove them:

- A tenant's collector is reached under the rules of every other address, and gets no header of the operator.
  `tests/attacks/test_g133_telemetry_is_a_tenants.py`
"""
