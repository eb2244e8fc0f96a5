"""The Action plane sends the calls of runs to adapters.

Owns:

- `registry`: capabilities and their compiled schemas;
- `gateway`: the guards that every call passes, idempotency, sending the call and checking its reply;
- `attachments`: the check of the files that a request names;
- `budget`: whether one more call fits the run's budget;
- `breaker`, `breaker_adapter`: circuit breakers, and adapters that are called through them.

Does not own: whether a risky operation is allowed or approved (Trust), which capabilities exist (packs and adapters),
the outcome of a run (Decision), or the external systems (adapters).

Invariants, with the tests that prove them:

- A call that a guard refuses never reaches an adapter, and every refusal has a code and is recorded:
  `tests/e2e/test_verdicts.py`. A call that is refused only by the own rules of a pack that observes is recorded and
  sent: `tests/unit/action/gateway/test_observing.py`.
- `runtime.wiring` repeats reads without the guards when an approval is redeemed, and only compares their answers.
- A dispatch is durable before its call is sent. A run that is killed at any boundary leaves one effect and a valid
  journal. An effect that possibly happened is never sent again blindly: `tests/e2e/test_crash_boundaries.py`.
- One operation has one effect, however many runs request it at the same time: `tests/e2e/test_one_effect.py`.
- An open circuit sends nothing, and says nothing about calls that were sent before: `tests/e2e/test_breakers.py`.
- An idempotency key is claimed once, and refused with other arguments: `tests/machines/test_gateway_idempotency.py`.
"""
