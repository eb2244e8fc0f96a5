"""What people sign, in clear: each statement is computed from what its signer is shown, in every program alike.

Owns the statements and the check that everything in one follows from its content. Does not own keys, tokens or who may
sign (`trust.approvals`). `contextos.client` uses the same functions as the server.

- `questions`: the question to an approver and the answer to it; `question_text`: the same for people.
- `settlements`: what an operator states about an effect of unknown outcome.
- `acts`: what follows from what the signer of an act sends.

Tests: `tests/unit/contracts/statements`, `tests/attacks/test_g54_a_signature_is_over_the_call_in_clear.py`.
Source: docs/adr/0058-a-signature-is-over-what-was-shown.md.
"""
