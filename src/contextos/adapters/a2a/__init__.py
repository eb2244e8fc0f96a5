"""A2A agents as adapters: the skills of an agent are capabilities, called only while its card is as it was published.

Owns the connection to an agent over JSON-RPC (official SDK, extra `a2a`), the bounds on what an agent can send, the
check of the pinned card before each call, what each state of a task means for the call, and the draft of an adapter
file from a card. Does not own whether a call is allowed, nor the schemas, keys and recovery of calls. An agent's
questions are not answered, and its push notifications, streams and extended card are not used.

Invariants, with the tests that prove them:

- Nothing is sent to an agent whose card is not the published one, no text of the new card goes anywhere, and no URL of
  a card is followed. `tests/attacks/test_d40_hostile_a2a_agents.py`
- An agent cannot make this process read more than its limits, nor wait longer than the call's time.
  `tests/attacks/test_d40_hostile_a2a_agents.py`
- A call that may have reached the agent is a `LostReply`, unless it is a read or the agent states the outcome.
  `tests/unit/adapters/a2a/test_adapter.py`
- A lookup finds what happened or raises `LostReply`; it never says that nothing happened.
  `tests/unit/adapters/a2a/test_adapter.py`
"""
