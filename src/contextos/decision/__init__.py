"""The Decision plane: what happens next. The Planner proposes, the Critic verifies and scores, the Executor runs.

Owns: the run table, intents and templates, plan structure, verdicts, loop control.
Does not own: API calls (Action), policy truth (Trust), what is known (Intelligence).
Invariants: no plan step runs that the Critic did not verify; every failure is a typed verdict; loops are bounded.
Proved in `tests/unit/decision` and `tests/machines`.
"""
