"""The Decision plane decides what happens next. A Planner proposes, the Critic verifies and scores, the Executor runs.

Owns: intents and the RunContext (`intents`); plans (`planners`); verdicts about plans (`critic`); running the steps of
a verified plan (`executor`), independent reads at the same time (`parallel_reads`); the scorecard and the end of a run
(`scoring`).

Does not own: calls to external systems (Action), what is allowed (Trust), what is known (Intelligence), what is shown
to a model (Context), or the run's states (`runtime.state_machine`).

Invariants, with the tests that prove them:

- No step runs that the Critic did not verify, and policy decides whatever a planner proposes:
  `tests/e2e/test_verdicts.py`.
- Every failure is a typed verdict with a record, and replanning ends when its budget is used up:
  `tests/e2e/test_verdicts.py`.
- Money moves exactly as the example's table states: `tests/examples/test_outcomes.py`.
"""
