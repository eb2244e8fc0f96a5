"""The outbox: what a person or another system learns of runs from outside, as webhooks and mails.

- `notices`: what a notice says of a run, and what it never says.
- `sending`: the notices of a tenant to one destination, at least once and in order per run.
- `setting`: the setting `[outbox]`.

Does not own: how a notice is sent (`adapters.notices`), or when (`workspace.engine.event_delivery`).

Invariant, with the test that proves it: a notice approves nothing, and holds no argument, fact or secret
(`tests/attacks/test_e39_events_and_notices.py`).
"""
