"""What the store has of a tenant is verified, and compared with the heads at the witness."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contextos.audit.verify import RunNumbers, Verification, VerifiedStream
from contextos.errors import Integrity, NotFound
from contextos.workspace import App
from contextos.workspace.verification import Compared, verify_stored
from tests.http_face import OTHER_TENANT, TENANT, HttpFace, http_face


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("verification")) as made:
        made.send("POST", "/v1/runs", json=made.request())
        made.send("POST", "/v1/runs", json=made.request())
        yield made


def verified(
    face: HttpFace, tenant: str = TENANT, *, last: int | None = None, witness: str = ""
) -> tuple[list[VerifiedStream], Compared | None]:
    app: App = face.app
    found: list[VerifiedStream] = []
    verification = Verification(app.stores.tenant(tenant), tenant, app.keys, numbers=RunNumbers(1, last))
    verify = verify_stored(app, tenant, verification, found.append, whole=last is None, witness=witness)
    return found, face.call(verify)


def test_the_whole_tenant_is_compared_with_its_witness(face: HttpFace) -> None:
    found, compared = verified(face)
    assert [one.stream for one in found][-2:] == ["index", "control"]
    assert compared is not None
    assert compared.witness is not None
    assert set(compared.lengths) <= {"index", "control"}
    assert (compared.earlier, compared.past) == ((), [])


def test_a_range_with_an_end_is_compared_with_nothing(face: HttpFace) -> None:
    found, compared = verified(face, last=1)
    assert ([one.stream for one in found][1:], compared) == (["index"], None)


def test_a_witness_that_knows_nothing_of_the_tenant_is_refused(face: HttpFace, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(Integrity, match="the witness knows nothing of"):
        verified(face, witness=str(tmp_path / "empty"))


def test_a_tenant_of_which_nothing_is_stored_is_not_found(face: HttpFace) -> None:
    with pytest.raises(NotFound, match="nothing is stored"):
        verified(face, OTHER_TENANT)
