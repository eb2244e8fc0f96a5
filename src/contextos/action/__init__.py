"""The Action plane: what touches the world, and nothing else does.

Owns: the registry of capabilities and their schemas, the Tool Gateway (every guard in order, as one visible list),
call and result envelopes, idempotency, recovery of a call whose reply was lost.
Does not own: whether a risky action is allowed (Trust), inventing capabilities, final outcomes (Decision).
Invariants: a call outside the manifest never reaches an adapter; an intent is durable before its call; an effect that
may have happened is never sent again blindly. Proved in `tests/unit/action` and `tests/e2e`.
"""
