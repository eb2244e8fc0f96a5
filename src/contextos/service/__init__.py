"""What an application uses of a deployment beside `invoke`: runs, approvals, facts and subscriptions, as frozen models.

- `runs`: lists, single runs, their timelines, and events that a reader can resume.
- `approvals`: the questions that wait for people, what an answer signs, and the answers.
- `acts`: what a person signs elsewhere to do an act, and the act by their tokens. `reasks`: have a void question
  asked again.
- `artifacts`: the published artifacts, and which of them are active.
- `run_search`: the criteria of a search of runs. `operations`: the table of all operations.
- `facts`: what is known of a subject, and the acts that change it; `pages`: a page of a list.
- `subscriptions`: handlers that receive every event at least once. `workspace.engine.event_delivery` calls them.
- `views`: the models of the answers.
- `outbox`: notices of runs, as webhooks and mails. `passkeys`: the passkeys that approvers register.
- `slot_questions`: the selections that paused flows ask of people. `person_documents`: the sealed documents of which
  each person has one.

Does not own: reading (`deployment.queries`), the acts of people (`deployment.acts`), or rendering (the application
itself).

Invariants, with the tests that prove them:

- A reader of events that goes on behind its last cursor misses nothing and repeats nothing:
  `tests/e2e/test_application_events.py`.
- A cursor of another tenant, or one that somebody made up, is refused: `tests/attacks/test_e27_cursors.py`.
- A crash between a handler and its cursor repeats the event, and none is lost: `tests/e2e/test_subscriptions.py`.
- An answer counts for one question of one tenant, once: `tests/attacks/test_e27_answers.py`.
- A fact is written by a person with the role for it, and not beside another: `tests/attacks/test_e27_facts.py`.
"""
