"""The story escapes foreign text and lists erased bodies; `tests/unit/cli/runs` shows whole stories."""

from __future__ import annotations

import orjson

from contextos.contracts.journal import Draft, genesis, link
from contextos.deployment.queries.timeline import story_document, tell_story

REQUEST = {
    "request_id": "req_1",
    "mode": "sync",
    "input": {"message": "pay\x1b[2J\u202enow", "intent": "support.refund"},
    "user": {"user_id": "ann"},
    "agent": {"agent_id": "agt"},
}


def test_foreign_text_is_escaped_and_an_erased_body_is_listed() -> None:
    body = orjson.dumps({"answer": {"request": REQUEST}})
    entry = link("t", "run_1", 1, genesis("t", "run_1"), Draft("run.received", "", 5, "runtime", body, bytes(16)))
    story = tell_story([entry])
    assert list(story) == ["What was asked"]
    assert story["What was asked"][0].after_us == 0
    assert not {"\x1b", "\u202e"} & set(str(story_document(story)))
    assert list(tell_story([entry._replace(body=None, salt=None)])) == ["What was erased"]
    assert tell_story([]) == {}
