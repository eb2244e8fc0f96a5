"""`app.slot_questions`: a flow that waits for a person to fill a context slot asks them here, and reads their answer.

The runtime of the flow, such as WayFlow, works on the store of this deployment. It asks when the flow pauses, and
resumes the flow with the answer, which the flow checks again and records. A governed run asks in its own journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.documents.identities import FLOW_QUESTIONS
from contextos.contracts.envelopes.slots import PickRefused, SlotQuestion, SlotResolution, selection_id
from contextos.contracts.ids import RUN
from contextos.contracts.ports.seams import SlotSteps
from contextos.deployment.deployment import Deployment
from contextos.errors import ApprovalRefused, InvalidInput, NotFound, Problem
from contextos.service.person_documents import PersonContent, PersonDocuments, person_document_key

QUESTIONS_TYPE: Final = "application/vnd.contextos.flow-questions+json"
MAX_FLOW_QUESTIONS: Final = 32
"""The most questions of flows to one person that are kept. One more replaces the oldest answered one."""


@dataclass(frozen=True, slots=True)
class FlowQuestion:
    """A selection that a paused flow asks of a person. `answer` is the text that resumes the flow, None until they
    answered. `asked_at_us` is Unix time in microseconds.
    """

    selection_id: str
    question: SlotQuestion
    asked_at_us: int
    answer: str | None


class SlotQuestions:
    """The questions of paused flows. The caller has authenticated the person, and the runtime vouches for the actor of
    a question.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._documents = PersonDocuments(
            deployment.ports, FLOW_QUESTIONS, QUESTIONS_TYPE, {"questions": []}, "answer again"
        )

    async def ask(self, tenant_id: str, question: SlotQuestion) -> str:
        """Ask the actor of a question to fill its slot, and return the id that their selection will have. Asked again,
        the question is open again.

        Raises:
            InvalidInput: the question is of a governed run, or nobody is asked by it, or 32 of the person are open.
            Conflict, Unavailable: the store is changed at the same moment, or does not answer.
        """
        origin, slot = question.origin, question.slot
        if RUN.fits(origin.parent_run_id, sealed=True):
            raise _refused("/origin/parent_run_id", "governed_run", "a governed run asks in its own journal")
        if slot.selection_mode != "interactive" or origin.principal_id != question.actor.principal_id:
            raise _refused("/slot", "nobody_asked", "the slot asks nobody, or another person than the actor")
        asked_id = selection_id(slot.slot_id, origin)
        asked = {"question": question.to_json(), "asked_at_us": self._deployment.ports.clock.now_us(), "answer": None}

        def added(content: PersonContent) -> PersonContent:
            others = [one for one in content["questions"] if _question(one).selection_id != asked_id]
            if len(others) >= MAX_FLOW_QUESTIONS:
                answered = next((one for one in others if one["answer"] is not None), None)
                if answered is None:
                    detail = f"{MAX_FLOW_QUESTIONS} questions to this person are open"
                    raise _refused("/actor/principal_id", "too_many", detail)
                others.remove(answered)
            return {"questions": [*others, asked]}

        await self._documents.change(tenant_id, origin.principal_id, added)
        return asked_id

    async def waiting(self, tenant_id: str, person_id: str) -> Sequence[FlowQuestion]:
        """Return the questions to a person that are open, the oldest first."""
        return [one for one in await self._questions(tenant_id, person_id) if one.answer is None]

    async def offer(self, tenant_id: str, person_id: str, asked_id: str) -> tuple[SlotQuestion, SlotResolution]:
        """Return an open question to a person, and the artifacts that they can select now.

        Raises:
            NotFound: no flow asks this person for this selection.
            ApprovalRefused: they answered (`not_waiting`).
        """
        question = (await self._open(tenant_id, person_id, asked_id)).question
        return question, await self._steps(tenant_id).offer(question.slot, question.actor, question.project_id)

    async def answer(self, tenant_id: str, person_id: str, asked_id: str, answer: bytes) -> PickRefused | None:
        """Keep a person's answer (`userResponse` as JSON) for the flow, or return why it is refused. The first one
        counts.

        Raises as `offer`, and `Conflict` and `Unavailable` as `ask`.
        """
        question = (await self._open(tenant_id, person_id, asked_id)).question
        chosen = await self._steps(tenant_id).choose(
            question.slot, question.actor, question.project_id, question.origin, answer
        )
        if isinstance(chosen, PickRefused):
            return chosen

        def answered(content: PersonContent) -> PersonContent:
            _check_open([_question(one) for one in content["questions"]], asked_id)
            return {
                "questions": [
                    {**one, "answer": answer.decode()} if _question(one).selection_id == asked_id else one
                    for one in content["questions"]
                ]
            }

        await self._documents.change(tenant_id, person_id, answered)
        return None

    async def answered(self, tenant_id: str, person_id: str, run_id: str) -> str | None:
        """Return the text that resumes the flow of a run: the person's answer to its newest question. None: there is no
        answer yet, or nothing was asked.
        """
        of_run = [
            one for one in await self._questions(tenant_id, person_id) if one.question.origin.parent_run_id == run_id
        ]
        return of_run[-1].answer if of_run else None

    async def _questions(self, tenant_id: str, person_id: str) -> list[FlowQuestion]:
        content, _ = await self._documents.content(tenant_id, person_document_key(person_id))
        return [_question(one) for one in content["questions"]]

    async def _open(self, tenant_id: str, person_id: str, asked_id: str) -> FlowQuestion:
        return _check_open(await self._questions(tenant_id, person_id), asked_id)

    def _steps(self, tenant_id: str) -> SlotSteps:
        steps = self._deployment.ports.slots
        if steps is None:
            raise NotFound("this deployment has no artifacts")
        return steps(tenant_id)


def _question(kept: Mapping[str, Any]) -> FlowQuestion:
    question = SlotQuestion.model_validate(kept["question"])
    asked_id = selection_id(question.slot.slot_id, question.origin)
    return FlowQuestion(asked_id, question, kept["asked_at_us"], kept["answer"])


def _check_open(questions: Sequence[FlowQuestion], asked_id: str) -> FlowQuestion:
    found = next((one for one in questions if one.selection_id == asked_id), None)
    if found is None:
        raise NotFound("no flow asks this person for this selection")
    if found.answer is not None:
        raise ApprovalRefused("not_waiting", f"`{asked_id}` was answered; the flow goes on with that")
    return found


def _refused(at: str, code: str, detail: str) -> InvalidInput:
    return InvalidInput(Problem(at, code, detail, "ask where the flow pauses, for its own slot and person"))
