"""The context selector gives no power: a title is text, and only the user of a run sees and answers its question."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from contextos.cli.demo.workspace import example_operator
from contextos.deployment.acts.curation import add_artifact, add_revision, classify_artifact
from contextos.errors import ContextOSError
from contextos.server.console.selector import SELECTOR
from contextos.workspace import open_unchecked
from contextos.workspace.settings import Settings
from tests.attacks.test_h14_the_console import HOSTILE, is_harmless
from tests.e2e.selections import BRIEFING, ORG, begin_selections, selecting_run
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face

PAGE = SELECTOR.removeprefix("/console")


async def begin_hostile(path: Path) -> None:
    """The workspace, with an artifact under each hostile title that the store takes."""
    await begin_selections(path)
    app, by = await open_unchecked(Settings.read(path)), example_operator(path)
    for number, title in enumerate(HOSTILE):
        of = {"artifact_id": f"hostile_{number}", "org_id": ORG}
        shown = {"title": title, "owner_level": "organization", "owner_id": ORG, "visibility": "org"}
        with suppress(ContextOSError):
            await add_artifact(app.deployment, TENANT, {**of, **shown}, by=by)
            content = {"mime": "text/plain", "content": title}
            await add_revision(app.deployment, TENANT, {**of, **content}, by=by)
            kind = {"extension": BRIEFING, "asserted_by": "user"}
            await classify_artifact(app.deployment, TENANT, {**of, **kind}, by=by)
    app.close()


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("selector"), begin_hostile) as made:
        yield made


@pytest.fixture(scope="module")
def run(face: HttpFace) -> str:
    return selecting_run(face)


def test_a_hostile_title_is_text(face: HttpFace, run: str) -> None:
    page = face.page(f"{PAGE}?run={run}")
    offered = face.send("GET", f"/v1/runs/{run}/slot").json()["offer"]["manifest"]
    titles = {one["title"] for one in offered} & set(HOSTILE)
    assert len(titles) > 20
    assert is_harmless(page.text)
    assert not re.search("[\u200b\u202e\u2066\ufeff\U000e0041]", page.text)
    assert all(title in html.unescape(page.text) for title in titles if title.isascii() and title.isprintable())


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_choice_is_text_and_selects_nothing(face: HttpFace, run: str, hostile: str) -> None:
    for params in (
        {"run": run, "pick": hostile, "show": "1"},
        {"run": run, "pick.1": f"{hostile} rev_x asr_x", "show": "1"},
        {"run": run, f"pick{hostile}"[:200]: "a b c", "show": hostile[:8]},
    ):
        page = face.page(PAGE, params=params)
        assert (page.status_code, is_harmless(page.text)) == (200, True)
        assert " checked" not in page.text
    assert face.send("GET", f"/v1/runs/{run}").json()["waits_for"] == "slot"


def test_only_the_user_of_the_run_sees_its_question(face: HttpFace, run: str) -> None:
    seen = {
        person: face.page(f"{PAGE}?run={run}", person).status_code for person in (REQUESTER, OPERATOR, LEAD, "usr_772")
    }
    assert seen == {REQUESTER: 200, OPERATOR: 403, LEAD: 404, "usr_772": 404}
    for person in (REQUESTER, OPERATOR):
        page = face.page(f"{PAGE}?run={run}", person, tenant=OTHER_TENANT)
        assert (page.status_code, "Enterprise buyers" in page.text) == (404, False)
    assert f"?run={run}" in face.page("/inbox").text
    for person in (OPERATOR, LEAD):
        assert run not in face.page("/inbox", person).text
        assert f"{SELECTOR}?run={run}" not in face.page(f"/runs/{run}", person).text


@pytest.mark.parametrize(
    "path",
    [
        "/renderers/other",
        "/renderers/@cinatra-ai/context-selection-agent:context-selector/x",
        "/renderers/../inbox.html",
        "/renderers/selector.html",
        PAGE,
        f"{PAGE}?run=run_nothing",
        f"{PAGE}?run=" + "a" * 128,
    ],
)
def test_another_renderer_or_run_is_not_there(face: HttpFace, path: str) -> None:
    assert face.page(path).status_code in (307, 404)


@pytest.mark.parametrize("path", [f"{PAGE}?run=" + "a" * 200, f"{PAGE}?run=run_x&show=" + "a" * 20])
def test_what_is_too_long_is_refused(face: HttpFace, path: str) -> None:
    assert face.page(path).status_code == 422


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_the_page_changes_nothing(face: HttpFace, run: str, method: str) -> None:
    assert face.page(f"{PAGE}?run={run}&pick=a&show=1", method=method).status_code == 405


def test_another_site_cannot_send_the_selection(face: HttpFace, run: str) -> None:
    answer = {"slotId": "briefings", "resolutionMode": "accumulate", "selectedRefs": []}
    cookie = {"Host": "127.0.0.1:8765", "Cookie": f"contextos-session={face.token(REQUESTER)}"}
    for headers in ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, {"Sec-Fetch-Site": "same-origin"}):
        body = {"answer": answer, "at_us": 0}
        refused = face.anonymous("POST", f"/v1/runs/{run}/slot", headers={**cookie, **headers}, json=body)
        assert refused.status_code == 403, refused.text
