"""The questions that are due first: what is kept of a run ends with the next line of the index about it."""

from __future__ import annotations

from pathlib import Path

from contextos.service.deadlines import Due, KeptDeadlines
from tests.http_face import LEAD, OPERATOR, TENANT, http_face


def test_a_question_is_read_once_until_its_run_goes_on_or_it_is_due(tmp_path: Path) -> None:
    with http_face(tmp_path) as face:
        runs, kept, asked = [face.waiting_run() for _ in range(3)], KeptDeadlines(), list[str]()
        store = face.app.stores.tenant(TENANT)

        async def read(run: str) -> Due:
            asked.append(run)
            return Due(100, "finance_lead")

        def found(now_us: int = 1) -> set[str]:
            return set(face.call(kept.read(store, read, now_us)))

        assert found() == set(runs)
        assert sorted(asked) == sorted(runs)
        assert found() == set(runs)
        assert len(asked) == 3, "nothing is read again"
        new = face.waiting_run()
        face.send("POST", f"/v1/approvals/{runs[0]}/answer", by=LEAD, json=face.signed_answer(runs[0], "denied"))
        face.ended(runs[0])
        assert found() == {*runs[1:], new}
        assert asked[3:] == [new]
        found(now_us=100)
        assert sorted(asked[4:]) == sorted([*runs[1:], new]), "what is due is looked at"


def test_the_most_urgent_come_first_and_each_is_counted(tmp_path: Path) -> None:
    with http_face(tmp_path) as face:
        runs = [face.waiting_run() for _ in range(5)]
        urgent = face.app.approvals.urgent
        page, total = face.call(urgent(TENANT, roles=["finance_lead"], limit=2))
        assert ([one.run_id for one in page.items], total) == (runs[:2], 5)
        page, total = face.call(urgent(TENANT, roles=["finance_lead"], limit=10, skip=4))
        assert ([one.run_id for one in page.items], total) == (runs[4:], 5)
        assert face.call(urgent(TENANT, roles=["treasurer"])) == (type(page)((), None, ()), 0)
        assert face.page("/inbox", OPERATOR).text.count('class="card"') == 0
        text = face.page("/inbox?begin=3", LEAD).text
        assert (text.count('class="card"'), '<span class="count">5</span>' in text) == (2, True)
        assert face.page("/inbox?begin=-1", LEAD).status_code == 422
