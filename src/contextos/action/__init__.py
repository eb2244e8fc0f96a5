"""The Action plane: what touches the world, and nothing else does.

Owns: the registry of capabilities and their schemas (`registry`); the Tool Gateway, every guard in order as one visible
list (`tool_gateway`, `guards`); idempotency keys and their claims (`idempotency`); sending a call, and finding out what
became of one whose reply was lost (`delivery`); leaving alone for a while what keeps failing (`breaker`, `reaching`).

Does not own: whether a risky act is allowed or agreed to (Trust), inventing capabilities (the pack and its adapters),
final outcomes (Decision), the outside itself (adapters).

Invariants, with the tests that prove them:

- What a guard refuses never reaches an adapter, and every refusal is typed and recorded: `tests/e2e/test_verdicts.py`.
- A dispatch is durable before its call; killed at any boundary, a run leaves one effect and a journal that verifies:
  `tests/e2e/test_crash_boundaries.py`.
- An effect that may have happened is never sent again blindly: `test_crash_boundaries.py`.
- One act is one effect, however many ask for it at once: `tests/e2e/test_one_effect.py`.
- An open circuit sends nothing and decides nothing about what was sent before: `tests/e2e/test_breakers.py`.
- A key is claimed once, and with other arguments it is refused: `tests/machines/test_gateway_idempotency.py`.
"""
