"""One process over a workspace of `contextos init --from agent`:
`python -m tests.e2e.model_driver WORKSPACE ACT [MODULE...]`. The modules are imported before the time of a run begins.

`begin` publishes what the workspace has, sends its request, and then waits until somebody kills it; `answer` answers as
the person who is asked, and drives the run to its end; `audit` replays and verifies. Each prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import contextos
from contextos.audit.verify import verify_tenant
from contextos.deployment.queries.run_view import RunView
from contextos.deployment.signing import answer_signer
from contextos.workspace import read_seed
from contextos.workspace.application import App

TENANT = "acme"


def say(told: Any) -> None:
    print(json.dumps(told), flush=True)


def seen(view: RunView) -> dict[str, Any]:
    return {"run_id": view.run_id, "state": view.state, "waiting": view.waiting, "record": view.record}


def begin(app: App) -> None:
    app.initialise(TENANT, by=contextos.Actor.with_key("otto", read_seed(Path("keys/otto.key"))))
    say(seen(app.deployment.invoke(json.loads(Path("request.json").read_text("utf-8")))))
    signal.pause()


def the_run(app: App) -> str:
    (run_id,) = {
        json.loads(one.body)["run"] for one in app.call(app.deployment.ports.stores.tenant(TENANT).read, "index")
    }
    return str(run_id)


def answer(app: App) -> None:
    view = app.deployment.view(TENANT, the_run(app))
    app.call(
        contextos.answer_approval,
        app.deployment,
        TENANT,
        view.run_id,
        approver_id="olga",
        verdict="approved",
        reason="looked at it",
        binding_digest=view.waiting["binding_digest"],
        vouch=answer_signer(read_seed(Path("keys/olga.key"))),
    )
    app.deployment.advance(TENANT, view.run_id)
    say(seen(app.deployment.view(TENANT, view.run_id)))


def audit(app: App) -> None:
    run_id, store = the_run(app), app.deployment.ports.stores.tenant(TENANT)
    entries = app.call(store.read, run_id)
    bodies: dict[str, list[Any]] = {}
    for one in entries:
        body = json.loads(one.body or b"null")
        bodies.setdefault(one.kind, []).append(body.get("answer", body))
    say(
        {
            "verified": len(app.call(verify_tenant, store, TENANT, app.keys)),
            "replayed": app.call(contextos.replay, app.deployment, TENANT, run_id).record_hash,
            "bodies": bodies,
            "repeated": [one for one, times in Counter((one.kind, one.key) for one in entries).items() if times > 1],
        }
    )


ACTS: dict[str, Callable[[App], None]] = {"begin": begin, "answer": answer, "audit": audit}

if __name__ == "__main__":
    for name in sys.argv[3:]:
        import_module(name)
    os.chdir(sys.argv[1])
    with contextos.open(".") as running:
        ACTS[sys.argv[2]](running)
