"""The read side: functions of stored entries that the command line, the server and a console share.

- `run_view`: the state of one run; `timeline`: its story.
- `sessions`: pages of `long_running` runs; `run_index`: the index that lists of runs read; `run_terms`: the
  terms by which a search has to find a run.

Does not own: rendering (`cli`, `server`), or the meaning of states and kinds (`runtime.state_machine`, `contracts`).
Nothing here writes, drives a run, or calls an external system other than the store that it reads.

Invariants, with the tests that prove them:

- A run that waits for a person is listed: `tests/simulator/test_waiting_index.py`.
- A list reads only as much of the index as its page needs: `tests/unit/cli/runs/test_runs_waiting.py`,
  `tests/unit/cli/runs/test_sessions.py`.
- Erased bodies and hostile text are shown as such: `tests/unit/cli/runs/test_runs.py`.
"""
