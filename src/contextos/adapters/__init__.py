"""The outside, behind the `Adapter` port: what the Tool Gateway may send a governed call to.

Owns: plain Python functions as capabilities (`function`), loading trusted function code by path and digest (`loading`),
the scripted double for tests (`scripted`).

Does not own: whether a call may happen (Trust), its schema, idempotency key and recovery (Action), what is registered
(settings list every adapter; nothing is discovered).

Invariants, with the tests that prove them:

- A write whose outcome is not certain is a `LostReply`, whatever went wrong; `Unavailable` means that nothing happened.
  `tests/unit/adapters/test_function.py`
- A lookup never says `Unavailable`: who asks what became of a call must not hear that it did not happen.
  `test_function.py`
- Code runs only if its bytes have the digest that settings name. `tests/unit/adapters/test_loading.py`
- A scripted adapter answers what it was given, in order, and fails when its script is over.
  `tests/unit/adapters/test_scripted.py`
"""
