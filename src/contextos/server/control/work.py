"""Work on packs that nobody signed yet (draft, expand, lint, mine, test, try) in a process of its own without secrets.

`python -m` of this module reads one task from stdin and writes one answer to stdout, both JSON. It opens no file, no
store and no key, and its limits on processor time and memory are set before it reads. What a caller wrote is data here:
nothing of it names a module, a file or a tool to call.
"""

from __future__ import annotations

import asyncio
import base64
import json
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.documents.catalog import MAX_DOCUMENT_BYTES
from contextos.contracts.encoding.codec import MAX_BYTES
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.yaml_text import in_lines
from contextos.contracts.envelopes.identity import HeldRoles, Principals
from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.envelopes.pack import ContextPack, PolicyArtifact
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.artifacts import PACK_TYPE, GovernedArtifact, ref_of, tenant_of
from contextos.errors import InvalidArtifact, InvalidInput, InvalidSettings, InvalidTool, MalformedJson, Problem
from contextos.packs.building import expand_content
from contextos.packs.checking import KnownHere, artifact_problems, read_unsigned
from contextos.packs.deployed import Deployed
from contextos.packs.expansion import Expansion
from contextos.packs.reading import draft_pack
from contextos.telemetry.logs import error_fields
from contextos.trust.seal import pae

if TYPE_CHECKING:
    from contextos.deployment.queries.observations import RecordedSession
    from contextos.packs.mining.backtest import JudgedCall

MAX_CPU_S: Final = 10
MAX_DATA_BYTES: Final = 1 << 30
MAX_SHOWN_PROBLEMS: Final = 200
"""The most problems of one answer; `more` counts the others."""
OUT_OF_MEMORY: Final = 70
"""The exit code of work that needed more than `MAX_DATA_BYTES`."""

_Task = Mapping[str, Any]
_Answer = dict[str, Any]


def _draft(task: _Task) -> _Answer:
    """Return the short form of a new pack over all tools of the deployment."""
    fields = {**task["fields"], "tenant": task["tenant"]}
    text = draft_pack("pack.yaml", fields, _definitions(task))
    expand_content(text.encode(), _definitions(task))
    return {"declaration": text}


def _expand(task: _Task) -> _Answer:
    """Return the whole pack of a text, the origins of the fields of a short form, and what its author signs."""
    definitions = _definitions(task)
    pack, expansion = read_unsigned(_raw(task["declaration"]), lambda: definitions)
    if not isinstance(pack, ContextPack):
        raise InvalidArtifact(Problem("", "no_pack", "the document is not a pack", "send a pack, short or whole"))
    _require_tenant(pack.pack_meta.tenant, task)
    document = expansion.document if expansion is not None else pack.to_json()
    payload = canonical(document)
    if len(payload) > MAX_DOCUMENT_BYTES:
        detail = f"the whole pack has more than {MAX_DOCUMENT_BYTES} bytes"
        raise InvalidArtifact(Problem("", "too_large", detail, "divide it into several packs"))
    return {
        "pack": document,
        "origins": dict(expansion.origins) if expansion is not None else {},
        "payload_type": PACK_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signing_input": base64.b64encode(pae(PACK_TYPE, payload)).decode(),
    }


def _lint(task: _Task) -> _Answer:
    """Return the problems of an artifact: alone, with the artifacts beside it, and (with `here`) in the deployment."""
    definitions = _definitions(task)
    try:
        artifact, expansion = read_unsigned(_raw(task["document"]), lambda: definitions)
        _require_tenant(tenant_of(artifact), task)
        others = [_read_beside(index, text, artifact, task, definitions) for index, text in enumerate(task["beside"])]
    except InvalidInput as error:
        return _problems(error.problems)
    tenant, facts, known = task["tenant"], task["here"], None
    if facts is not None:
        by_id = {definition.adapter_id: definition for definition in definitions}
        roles, deployed = HeldRoles.model_validate(facts["roles"]), Deployed.model_validate(facts["deployed"])
        policies = tuple(map(PolicyArtifact.model_validate, facts["policies"]))
        typed = [(RoutingRules if "rules_id" in model else ModelProfile, model) for model in facts["models"]]
        models = {tenant: [kind.model_validate(model) for kind, model in typed]}
        egress = {tenant: tuple(facts["egress"])}
        known = KnownHere(by_id, {tenant: roles}, egress, {tenant: policies}, deployed, models=models)
    problems = tuple(artifact_problems(artifact, others, known))
    raw = _raw(task["document"])
    return _problems(expansion.placed(problems) if isinstance(expansion, Expansion) else in_lines(problems, raw))


def _read_beside(
    index: int, text: str, artifact: GovernedArtifact, task: _Task, definitions: Sequence[AdapterDefinition]
) -> GovernedArtifact:
    """Return an artifact to check a pack or routing rules with. Raises `InvalidInput` with its place in `beside`."""
    place = f"/beside/{index}"
    try:
        other, _ = read_unsigned(_raw(text), lambda: definitions)
        _require_tenant(tenant_of(other), task)
    except InvalidInput as error:
        raise InvalidArtifact(*(replace(fault, pointer=place + fault.pointer) for fault in error.problems)) from None
    is_profile_of_rules = isinstance(artifact, RoutingRules) and isinstance(other, ModelProfile)
    if isinstance(other, ContextPack) or not (is_profile_of_rules or isinstance(artifact, ContextPack)):
        detail = "a pack is checked with what it names, routing rules with profiles, and nothing else with another one"
        raise InvalidArtifact(Problem(place, "not_beside", detail, "check each alone"))
    return other


def _test(task: _Task) -> _Answer:
    """Return the verdict of a pack on each call that sessions recorded."""
    from contextos.packs.mining.backtest import backtest
    from contextos.workspace.in_memory import in_memory

    definitions = _definitions(task)
    calls = asyncio.run(backtest(_read_pack(task, definitions).to_json(), definitions, _sessions(task), in_memory))
    return {"calls": [_judged_call(call) for call in calls]}


def _mine(task: _Task) -> _Answer:
    """Return the short form of a pack that allows the calls that sessions made."""
    from contextos.packs.mining.draft import mined_yaml
    from contextos.packs.mining.miner import mine

    definitions = _definitions(task)
    mined = mine(_sessions(task), definitions, tenant_id=task["tenant"], **task["fields"])
    declaration = mined_yaml(mined)
    expand_content(declaration.encode(), definitions)
    return {"declaration": declaration, "calls_left_out": mined.left_out, "not_bounded": mined.unbounded}


def _sandbox(task: _Task) -> _Answer:
    """Return the problems of a pack, and what a request does with it in a deployment in memory."""
    from contextos.workspace.sandbox import Sandbox, read_document_of, run_in_sandbox

    world, definitions = Sandbox.model_validate_json(json.dumps(task["world"])), _definitions(task)
    named = [one for one in map(read_document_of, world.beside) if not isinstance(one, ModelProfile | RoutingRules)]
    answer = _lint({**task, "beside": [json.dumps(one.to_json()) for one in named]}) if task["lint"] else _problems(())
    try:
        pack = _read_pack(task, definitions)
    except InvalidInput as error:
        # What lint found has its place in the text.
        return answer if answer["problems"] else _problems(error.problems)
    request = {**task["request"], "context_pack_refs": [pack.pin, *map(ref_of, named)]}
    try:
        run = asyncio.run(run_in_sandbox(pack, definitions, world, request))
    except InvalidArtifact as error:
        return answer if answer["problems"] else _problems(error.problems)
    except InvalidInput as error:
        within = "/adapters" if isinstance(error, InvalidSettings | InvalidTool) else "/request"
        at = {one: _OF_WORLD.get(one.pointer.split("/")[1] if one.pointer else "", within) for one in error.problems}
        raise InvalidInput(*(replace(one, pointer=place + one.pointer) for one, place in at.items())) from None
    return {**answer, "request": request, "run": run.to_json()}


_OF_WORLD: Final = {"calls": "", "memories": "", "nodes": "/facts", "edges": "/facts"}
"""Where a field of a stated world is, by its first name in a pointer."""


WORK: Final[Mapping[str, Callable[[_Task], _Answer]]] = {
    "draft": _draft,
    "expand": _expand,
    "lint": _lint,
    "test": _test,
    "mine": _mine,
    "sandbox": _sandbox,
}


def answered(task: _Task) -> _Answer:
    """Do a task and return its answer, or `{"refused": "malformed" | "invalid", "problems", "more"}` for bad input."""
    try:
        return WORK[task["work"]](task)
    except InvalidInput as error:
        return {"refused": "malformed" if isinstance(error, MalformedJson) else "invalid", **_problems(error.problems)}


def _sessions(task: _Task) -> list[RecordedSession]:
    """Return the sessions of a task, as the server read them."""
    from contextos.deployment.queries.observations import RecordedSession, SessionCall

    sessions = []
    for session in task["sessions"]:
        calls = [SessionCall(**call) for call in session["calls"]]
        principals = Principals.model_validate(session["principals"])
        sessions.append(RecordedSession(**{**session, "principals": principals, "calls": calls}))
    return sessions


def _read_pack(task: _Task, definitions: Sequence[AdapterDefinition]) -> ContextPack:
    """Return the pack of a task. Raises `InvalidInput` if its document is not a pack of the tenant."""
    artifact, _ = read_unsigned(_raw(task["document"]), lambda: definitions)
    if not isinstance(artifact, ContextPack):
        raise InvalidArtifact(Problem("", "no_pack", "the document is not a pack", "send a pack, short or whole"))
    _require_tenant(artifact.pack_meta.tenant, task)
    return artifact


def _definitions(task: _Task) -> list[AdapterDefinition]:
    return [AdapterDefinition.model_validate(definition) for definition in task["definitions"]]


def _raw(text: str) -> bytes:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise MalformedJson(Problem("", "not_utf8", "the text has a lone surrogate", "remove it")) from None
    if len(raw) > MAX_BYTES:
        raise MalformedJson(Problem("", "too_large", f"the text has more than {MAX_BYTES} bytes", "send less"))
    return raw


def _require_tenant(tenant: str | None, task: _Task) -> None:
    if tenant not in (None, task["tenant"]):
        detail, remedy = "the artifact is for another tenant", "state the tenant of your token in it"
        raise InvalidArtifact(Problem("/tenant", "other_tenant", detail, remedy))


def _problems(problems: Sequence[Problem]) -> _Answer:
    documents = [asdict(problem) for problem in problems[:MAX_SHOWN_PROBLEMS]]
    return {"problems": documents, "more": max(0, len(problems) - MAX_SHOWN_PROBLEMS)}


def _judged_call(judged: JudgedCall) -> _Answer:
    fields = {name: getattr(judged.call, name) for name in ("run_id", "call_id", "tool")}
    return {**fields, "verdict": judged.verdict, "rules": list(judged.rules), "detail": judged.detail}


def _write(answer: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode())


def do_one_task() -> int:
    """Set the limits, read one task and write its answer. Return the exit code: 0, or `OUT_OF_MEMORY`.

    After another exception the output is the fields for the log, without text of the caller, and the exit code is 1.
    """
    sys.excepthook = lambda _kind, error, _trace: _write(error_fields(error))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    try:
        _write(answered(json.loads(sys.stdin.buffer.read())))
    except MemoryError:
        return OUT_OF_MEMORY
    return 0


if __name__ == "__main__":
    sys.exit(do_one_task())
