"""The Decision plane: what happens next. The Planner proposes, the Critic verifies and scores, the Executor runs.

Owns: the run table (`machine`); intents, their risk and the RunContext (`intents`); plans from templates (`planner`);
verdicts about plans (`critic`); running the steps of a verified plan through the `Tools` seam (`executor`); the
scorecard and how a run ends (`scoring`).

Does not own: calls to the outside (Action), what is allowed (Trust), what is known (Intelligence), what is shown
(Context).

Invariants, with the tests that prove them:

- What the run table does not name is refused and changes nothing: `tests/machines/test_run_table.py`.
- No step runs that the Critic did not verify, and whatever a planner proposes, the boundary decides:
  `tests/e2e/test_verdicts.py`.
- Every failure is a typed verdict with a record; replanning ends where its budget ends: `test_verdicts.py`.
- Money moves as the example's table says, and not otherwise: `tests/unit/examples/test_outcomes.py`.
"""
