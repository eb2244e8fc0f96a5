"""The Trust plane: what makes a run governable. It says what is allowed, who agreed, and what is on record.

Owns: policy, three-valued and pure (`policy`, and what it is made of: `rules`, `conditions`, `operators`, `applying`,
`matching`, `combine`, `constraints`); who acts (`identity`); approvals and how an answer is vouched for (`approvals`,
`assertion`); the journal of a run and its chain (`ledger`); the DecisionRecord and ReplayPacket as folds of it
(`record`), and what a run used (`meter`); seals and keys (`seal`, `jws`); what must not leave or be shown (`redact`).

Does not own: planning and verdicts about plans (Decision), sending a call (Action), which artifacts are in force
(control), where journals are kept (store), who is who (the `Directory` port). It judges and never acts.

Invariants, with the tests that prove them:

- A missing, null or mistyped fact never loosens a decision, and any deny wins: `tests/unit/trust/test_policy.py`,
  against a naive reference in `tests/differential/test_policy.py`, at its sources in `tests/e2e/test_facts.py`.
- A condition that cannot be typed, and a bound that cannot be checked, is refused before it is in force:
  `tests/unit/trust/test_policy_rules.py`, `test_policy_constraints.py`.
- An approval moves one call once; whatever changed after it voids it, and nobody approves what they asked for:
  `tests/e2e/test_approvals.py`.
- What a request says of identity grants nothing; a claim has one form, one algorithm and one key:
  `tests/unit/trust/test_identity.py`.
- A signature counts only for its own purpose, over exactly the bytes that are used: `tests/unit/trust/test_seal.py`.
- The same redaction on every machine, in linear time: `tests/unit/trust/test_redact.py`.
- What was recorded is used, what is derived is compared, and a journal that was changed is found, by entry:
  `tests/e2e/test_tamper.py`, `tests/e2e/test_one_hash.py`.
"""
