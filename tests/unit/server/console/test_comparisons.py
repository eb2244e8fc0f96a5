"""Two runs side by side, a run derived again, its entries, and its story in both forms."""

from __future__ import annotations

import html
import re

from contextos.errors import ReplayMismatch
from contextos.service.operations.audits import ReplayDocument
from tests.http_face import OPERATOR, TENANT, HttpFace


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def begun(face: HttpFace) -> str:
    return str(face.send("POST", "/v1/runs", json=face.request()).json()["run_id"])


def test_the_first_difference_comes_before_the_parts_and_what_is_the_same_after_them(face: HttpFace) -> None:
    run, other = begun(face), face.waiting_run()
    text = text_of(face.page(f"/runs/{run}/compare?other={other}").text)
    found = face.send("GET", f"/v1/runs/{run}/comparison", params={"other": other}).json()
    assert text.index("First difference") < text.index('"ord_881"') < text.index("Decisions") < text.index("Outcome")
    assert text.index("Outcome") < text.index("The same in both: Tools")
    for one in found["differences"]:
        assert one["place"] in text
        assert all(side in text for side in (one["value"], one["other"]) if side is not None)
    assert "say the same" in text_of(face.page(f"/runs/{run}/compare?other={run}").text)
    assert "Write the id of another run" in text_of(face.page(f"/runs/{run}/compare").text)


def test_every_entry_that_a_run_page_names_is_opened_by_its_link(face: HttpFace) -> None:
    run = begun(face)
    numbers = {int(seq) for seq in re.findall(r"/entries\?seq=(\d+)", face.page(f"/runs/{run}").text)}
    entries = face.call(face.app.runs.ledger(face.call(face.app.runs.get(TENANT, run))))
    kinds = {one.seq: one.kind for one in entries}
    assert len(numbers) > 10
    for seq in numbers:
        page = face.page(f"/runs/{run}/entries?seq={seq}")
        assert (page.status_code, kinds[seq] in page.text) == (200, True)
    whole = face.page(f"/runs/{run}/entries").text
    assert all(f'id="entry-{seq}"' in whole for seq in kinds)


def test_the_entries_of_a_call_are_those_about_it(face: HttpFace) -> None:
    run = begun(face)
    record = face.send("GET", f"/v1/runs/{run}/record").json()
    call = next(ref for ref in record["evidence_refs"] if ref.startswith("tool:adp_orders")).rpartition(":")[2]
    found = face.send("GET", f"/v1/runs/{run}/entries", params={"call": call}).json()["items"]
    assert {"tool.dispatching", "tool.returned"} <= {one["kind"] for one in found}
    page = face.page(f"/runs/{run}/entries?call={call}").text
    assert all(f'id="entry-{one["seq"]}"' in page for one in found)

    elsewhere = face.page(f"/runs/{run}/entries?call=tool_0000000000000000")
    assert (elsewhere.status_code, "an earlier run" in elsewhere.text) == (200, True)


def test_the_story_has_a_compact_form_and_the_steps_of_its_lines(face: HttpFace) -> None:
    run = face.waiting_run()
    full, compact = (face.page(f"/runs/{run}{view}", OPERATOR).text for view in ("", "?view=compact"))
    assert ('<details class="part" open>' in full, '<details class="part" open>' in compact) == (True, False)
    assert {"s1", "s2", "s3"} <= set(re.findall(r'class="step"[^>]*>([^<]+)<', full))
    assert f'hx-get="/console/runs/{run}?story=0&amp;why=0&amp;view=compact"' in compact


def test_a_replay_says_equal_or_names_the_first_entry_that_differs(face: HttpFace) -> None:
    run = begun(face)
    assert "Every entry is as recorded" in text_of(face.page(f"/runs/{run}/replay").text)
    waits = face.waiting_run()
    assert face.page(f"/runs/{waits}/replay").status_code == 422
    assert ReplayDocument.of_fault(run, ReplayMismatch(7, "evidence.retrieved", "it differs")).entry == 7
