"""A person's document counts only as the runtime sealed it, for this person and tenant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contextos.contracts.documents.identities import FLOW_QUESTIONS, SealedIdentity
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, Batch
from contextos.service.person_documents import PersonDocuments, person_document_key
from contextos.trust.seal import seal
from tests.http_face import OTHER_TENANT, TENANT, HttpFace, http_face

TYPE = "application/vnd.contextos.test+json"


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("documents")) as made:
        yield made


def test_a_document_of_somebody_else_or_of_another_type_is_empty(face: HttpFace) -> None:
    ports = face.app.deployment.ports
    documents = PersonDocuments(ports, FLOW_QUESTIONS, TYPE, {"seen": 0}, "again")
    before = face.call(documents.change(TENANT, "ann", lambda content: {"seen": content["seen"] + 1}))
    assert before == {"seen": 0}
    content, version = face.call(documents.content(TENANT, person_document_key("ann")))
    assert (content["seen"], version) == (1, 1)
    of_ann = face.call(FLOW_QUESTIONS.one(ports.stores.tenant(TENANT), person_document_key("ann")))

    def put(tenant: str, person: str, body: SealedIdentity) -> None:
        write = FLOW_QUESTIONS.write(person_document_key(person), 0, body)
        face.call(ports.stores.tenant(tenant).commit(Batch(run=CONTROL, writes=(write,))))

    other = canonical({"seen": 9, "tenant_id": TENANT, "key": person_document_key("cid")})
    put(TENANT, "bob", of_ann.body)
    put(OTHER_TENANT, "ann", of_ann.body)
    put(TENANT, "cid", SealedIdentity(seal("application/other+json", other, ports.keys, "claim")))
    for tenant, person in ((TENANT, "bob"), (OTHER_TENANT, "ann"), (TENANT, "cid")):
        assert face.call(documents.content(tenant, person_document_key(person))) == ({"seen": 0}, 1)
