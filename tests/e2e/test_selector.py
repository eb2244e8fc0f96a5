"""The context selector in Debian's Chromium (`make browser`): candidates by scope, the cap, the floor, and the answer.

Each test names what the page does as the renderer of the specification does it. No page raises an error, and axe finds
nothing serious in both themes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from contextos.server.console.selector import SELECTOR
from tests.e2e.selections import PACKAGE, begin_selections, paused_flow, selecting_run
from tests.e2e.test_console import THEMES, WIDTHS, LogIn, browser, log_in, url  # noqa: F401
from tests.http_face import OPERATOR, REQUESTER, TENANT, HttpFace, http_face

pytestmark = pytest.mark.slow

PAGE = SELECTOR.removeprefix("/console")


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("selector"), begin_selections) as made:
        yield made


def opened(face: HttpFace, log_in: LogIn, **of: Any) -> tuple[str, Page]:  # noqa: F811
    run = selecting_run(face)
    return run, log_in(REQUESTER, f"{PAGE}?run={run}", **of)


def boxes(page: Page) -> list[tuple[bool, bool]]:
    """Of each candidate: is it picked, and is it disabled?"""
    found: list[list[bool]] = page.locator("[name^=pick]").evaluate_all(
        "all => all.map(one => [one.checked, one.disabled])"
    )
    return [(picked, disabled) for picked, disabled in found]


def emitted(page: Page) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(page.locator("#userResponse").inner_text())
    return answer


def sign(page: Page, face: HttpFace) -> None:
    page.set_input_files("#key", face.path / "keys" / f"{REQUESTER}.key")
    page.get_by_role("button", name="Read what you sign").click()
    page.get_by_role("button", name="Sign with the key").click()


def test_candidates_stand_by_scope_from_narrow_to_broad_each_in_its_order(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    run, page = opened(face, log_in)
    legends = [text.rpartition(" ")[0] for text in page.locator("legend").all_inner_texts()]
    assert legends == ["Yours", "Team", "Organisation", "Workspace"]
    values = page.locator("[name^=pick]").evaluate_all("all => all.map(one => one.value)")
    refs = face.send("GET", f"/v1/runs/{run}/slot").json()["offer"]["refs"]
    names = ("artifactId", "representationRevisionId", "semanticAssertionId")
    assert values == [" ".join(ref[name] for name in names) for ref in refs]
    assert len({value.split(" ")[0] for value in values}) < len(values), "one artifact of two types is two candidates"


def test_nothing_is_picked_at_first_and_the_floor_is_explained(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    _, page = opened(face, log_in)
    assert set(boxes(page)) == {(False, False)}
    assert emitted(page) == {"slotId": "briefings", "resolutionMode": "accumulate", "selectedRefs": []}
    expect(page.locator(".rules")).to_contain_text("At least 1. With fewer the agent cannot proceed.")
    expect(page.locator(".state")).to_contain_text("cannot proceed")
    expect(page.get_by_role("button", name="Read what you sign")).to_be_disabled()
    expect(page.locator(".rules .badge")).to_have_text("Read-only")
    expect(page.locator("main")).to_contain_text("pay\\u202e0001<script>")


def test_each_toggle_and_clear_makes_a_new_answer_in_the_order_of_scopes(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    _, page = opened(face, log_in)
    page.evaluate(
        "window.said = []; addEventListener('userResponse', event => said.push(event.detail.selectedRefs.length))"
    )
    page.get_by_label("Enterprise buyers").check()
    page.get_by_label("My notes of the call").check()
    assert [ref["artifactId"] for ref in emitted(page)["selectedRefs"]] == ["mine", "a_org"]
    assert [text for text in page.locator(".place").all_inner_texts() if text] == ["1", "2"]
    page.get_by_label("My notes of the call").uncheck()
    page.get_by_role("link", name="Clear").click()
    assert emitted(page)["selectedRefs"] == []
    assert page.evaluate("said") == [1, 2, 1, 0]


def test_at_the_cap_what_is_not_picked_is_disabled_and_comes_back(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    _, page = opened(face, log_in)
    assert len(boxes(page)) == 6, "all candidates are shown, also behind the cap"
    page.get_by_label("Enterprise buyers").check()
    page.get_by_label("My notes of the call").check()
    assert sorted(boxes(page)) == [(False, True)] * 4 + [(True, False)] * 2
    expect(page.locator(".state")).to_contain_text("2 picked. That is the most.")
    page.get_by_label("Enterprise buyers").uncheck()
    assert sorted(boxes(page)) == [(False, False)] * 5 + [(True, False)]


def test_the_whole_selection_is_made_by_keyboard_alone(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    run, page = opened(face, log_in)
    page.goto(page.url.partition("/console")[0] + "/console/inbox")
    page.locator(f'a[href$="?run={run}"]').focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("briefings")

    def tab_to(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("one => document.activeElement.matches(one)", selector):
                return
        pytest.fail(f"no Tab leads to {selector}")

    tab_to("[name^=pick]")
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert [ref["artifactId"] for ref in emitted(page)["selectedRefs"]] == ["mine", "team"]
    tab_to("#key")
    # A dialog of the system chooses the file, and the test answers for it.
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Space")
    chooser.value.set_files(face.path / "keys" / f"{REQUESTER}.key")
    tab_to("#selection button")
    page.keyboard.press("Enter")
    expect(page.locator("[data-sign=key]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".result-link a")).to_be_focused()
    # The second slot takes the narrowest scope: one voice, picked with the arrow keys.
    page.goto(page.url)
    expect(page.locator("h1")).to_contain_text("voice")
    tab_to("[type=radio]")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    assert boxes(page) == [(False, False), (True, False)], "a new pick replaces the one before"
    assert [ref["artifactId"] for ref in emitted(page)["selectedRefs"]] == ["calm"]
    tab_to("#clear")
    page.keyboard.press("Enter")
    assert boxes(page) == [(False, False)] * 2
    expect(page.locator(".state")).to_contain_text("runs without this context")
    page.set_input_files("#key", face.path / "keys" / f"{REQUESTER}.key")
    tab_to("#selection button")
    page.keyboard.press("Enter")
    expect(page.locator("[data-sign=key]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".result")).to_contain_text("recorded")
    face.ended(run)
    first, second = (one["act"] for one in face.send("GET", f"/v1/runs/{run}/selections").json()["items"])
    assert [ref["artifactId"] for ref in first["refs"]] == ["mine", "team"]
    assert (second["slot_id"], second["refs"], second["selected_by"]) == ("voice", [], "user"), "nothing is an answer"


def test_what_is_signed_is_shown_and_nothing_is_sent_before(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    run, page = opened(face, log_in)
    page.get_by_label("My notes of the call").check()
    page.get_by_role("button", name="Read what you sign").click()
    expect(page.locator(".result")).to_contain_text("Choose the file with your key first")
    page.set_input_files("#key", face.path / "keys" / f"{REQUESTER}.key")
    page.get_by_role("button", name="Read what you sign").click()
    expect(page.locator(".statement pre")).to_contain_text('"artifactId": "mine"')
    page.get_by_label("Enterprise buyers").check()
    expect(page.locator(".statement")).to_be_hidden()
    assert face.send("GET", f"/v1/runs/{run}").json()["waits_for"] == "slot"


def test_a_pick_that_is_gone_is_refused_by_name_and_the_person_is_asked_again(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    run, page = opened(face, log_in, expected=(422,))
    box = page.get_by_label("My notes of the call")
    box.evaluate("one => one.value = 'gone rev_0000000000000000 asr_0000000000000000'")
    box.check()
    page.set_input_files("#key", face.path / "keys" / f"{REQUESTER}.key")
    page.get_by_role("button", name="Read what you sign").click()
    expect(page.locator(".result")).to_contain_text(
        re.compile(r"^Nothing is recorded\. Pick again: .*`gone`: the ref cannot be picked here[^·]*$")
    )
    assert box.is_checked(), "what was picked stays"
    assert face.send("GET", f"/v1/runs/{run}").json()["waits_for"] == "slot"


def test_of_two_windows_the_first_answer_counts(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    run, first = opened(face, log_in)
    second = log_in(REQUESTER, f"{PAGE}?run={run}", expected=(409, 422))
    for page in (first, second):
        page.get_by_label("My notes of the call").check()
    sign(first, face)
    expect(first.locator(".result")).to_contain_text("recorded")
    second.set_input_files("#key", face.path / "keys" / f"{REQUESTER}.key")
    second.get_by_role("button", name="Read what you sign").click()
    expect(second.locator(".result")).to_have_class(re.compile("fault"))


def test_without_scripts_the_form_is_sent_and_the_command_is_printed(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    run, page = opened(face, log_in, java_script_enabled=False)
    page.get_by_role("button", name="Show the answer").click()
    expect(page.locator(".state")).to_contain_text("needs at least 1 artifacts")
    for label in ("My notes of the call", "Enterprise buyers", "How support"):
        page.get_by_label(label).check()
    page.get_by_role("button", name="Show the answer").click()
    expect(page.locator(".state")).to_contain_text("takes at most 2")
    page.get_by_label("How support").uncheck()
    page.get_by_role("button", name="Show the answer").click()
    expect(page.locator(".command")).to_contain_text(f"contextos slots answer {run} --by {REQUESTER}")
    assert [ref["artifactId"] for ref in emitted(page)["selectedRefs"]] == ["mine", "a_org"]
    expect(page.locator(".state.fault")).to_have_count(0)
    assert face.send("GET", f"/v1/runs/{run}").json()["waits_for"] == "slot"


def test_the_run_leads_its_user_to_the_selector_and_nobody_else(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    run, page = opened(face, log_in)
    page.goto(page.url.partition("/console")[0] + f"/console/runs/{run}")
    page.get_by_role("link", name="Select", exact=True).click()
    expect(page.locator("h1")).to_contain_text("Select context")
    other = log_in(OPERATOR, f"/runs/{run}")
    expect(other.get_by_role("link", name="Select", exact=True)).to_have_count(0)


def test_the_answer_to_a_paused_flow_resumes_it(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    session, call, act_key = paused_flow(face, "flow_1")
    page = log_in(REQUESTER, "/inbox")
    page.get_by_role("link", name="briefings").click()
    expect(page.locator("main")).to_contain_text(PACKAGE)
    expect(page.get_by_role("button", name="Send the selection")).to_be_disabled()
    page.get_by_label("My notes of the call").check()
    page.get_by_role("button", name="Send the selection").click()
    expect(page.locator(".result")).to_contain_text("The flow goes on with it")
    expect(page.locator(".result-link a")).to_be_focused()
    text = face.call(face.app.slot_questions.answered(TENANT, REQUESTER, "flow_1"))
    assert json.loads(text)["slotId"] == "briefings"
    done = face.call(session.finalize(call, act_key, text))
    assert [ref.artifact_id for ref in done.act.refs] == ["mine"]
    page.goto(page.url.partition("/console")[0] + "/console/inbox")
    expect(page.get_by_role("link", name="briefings")).to_have_count(0)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_nothing_keeps_people_out_and_nothing_is_cut_off(face: HttpFace, log_in: LogIn, theme: str, width: int) -> None:  # noqa: F811
    of: dict[str, Any] = {"color_scheme": theme, "viewport": {"width": width, "height": 900}, "bypass_csp": True}
    _, page = opened(face, log_in, **of)
    page.get_by_label("My notes of the call").check()
    page.get_by_label("Enterprise buyers").check()
    found = Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
