"""The Trust plane decides what is allowed, records who approved it, and keeps a record in which a change is found.

Owns:

- `policy`: rules compile to a `PolicySet`, which answers allow or deny as a pure function of the facts;
- `approvals`: a person's signed decision about one call;
- `identity`: who acts in a run, and the signed claim of the run;
- `journal`: the entries of a run, their hash chain, and the DecisionRecord computed from them;
- `seal`: keys, signatures and sealed envelopes; `redact`: removing card numbers, e-mail addresses and secrets.

Does not own: plans and outcomes (Decision), sending a call (Action), which artifacts are active (control), where
journals are stored (store), or which users and agents exist (the `Directory` port). It decides and never acts.

Invariants, with the tests that prove them:

- A missing, null or mistyped fact never loosens a decision, and any deny wins:
  `tests/unit/trust/policy/test_policy_set.py`, against a naive reference in `tests/differential/test_policy.py`, where
  facts come from in `tests/e2e/test_facts.py`.
- A condition that cannot be typed, or a bound that cannot be checked, is refused before it is in force:
  `tests/unit/trust/policy/test_conditions.py`, `tests/unit/trust/policy/test_rules.py`.
- An approval allows one call once. Any later change to what it is bound to voids it, and nobody approves their own
  request: `tests/e2e/test_approvals.py`.
- A request's statements about identity grant nothing: `tests/unit/trust/identity/test_principals.py`. A claim has one
  form, one algorithm and one key: `tests/unit/trust/identity/test_claims.py`.
- A signature is valid only for its own purpose, over exactly the bytes that are used: `tests/unit/trust/test_seal.py`.
- Redaction gives the same result on every machine, in linear time: `tests/unit/trust/test_redact.py`.
- Recorded values are used, derived values are compared, and a changed journal is detected, by entry:
  `tests/e2e/test_tamper.py`, `tests/e2e/test_one_hash.py`.
"""
