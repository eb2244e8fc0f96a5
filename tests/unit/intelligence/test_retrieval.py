"""Evidence at a pinned snapshot: which facts are found, which get a name, and which are withdrawn."""

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.evidence import EvidenceItem, EvidencePath, RetrievalQuery
from contextos.errors import Integrity, NotFound
from contextos.intelligence.retrieval import GraphKnowledge, drop_stale_names
from contextos_sim.memory.graph import MemoryGraph

T = TypeVar("T")
ORDER, CUSTOMER = "order:ord_881", "customer:cus_77"
OBSERVED_US = 1_777_887_000_000_000


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that awaits nothing but the in-memory graph: no event loop is needed, so none is used."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("the core waited for something")


def edge(src: str, predicate: str, dst: str, **rest: Any) -> dict[str, Any]:
    return {
        "src": src,
        "predicate": predicate,
        "dst": dst,
        "evidence_ref": "session:import_1",
        "observed_at": OBSERVED_US,
        "integrity": "trusted",
        "classification": "INTERNAL",
        **rest,
    }


def graph_of(*edges: dict[str, Any]) -> MemoryGraph:
    graph = MemoryGraph()
    now(graph.put([], edges))
    return graph


def query(*named: tuple[str, list[str]], seeds: Sequence[str] = (ORDER,), at: int = 1, **bounds: int) -> RetrievalQuery:
    paths = tuple(EvidencePath(name=name, path=tuple(path)) for name, path in named)
    limits = {"hops": 2, "fan_out": 50, "limit": 200, **bounds}
    return RetrievalQuery(snapshot=f"kg_{at}", seeds=tuple(seeds), named=paths, **limits)


def retrieved(graph: MemoryGraph, asked: RetrievalQuery) -> tuple[EvidenceItem, ...]:
    return now(GraphKnowledge(graph).retrieve(asked))


def names(items: Sequence[EvidenceItem]) -> dict[str, Any]:
    return {item.name: item.value for item in items if item.name}


def unmet(graph: MemoryGraph, asked: RetrievalQuery) -> set[str]:
    """The names that are asked for and that no item gets."""
    return {path.name for path in asked.named} - names(retrieved(graph, asked)).keys()


REFUND = (
    edge(ORDER, "amount", ORDER, value=4200),
    edge(ORDER, "placed_by", CUSTOMER),
    edge(CUSTOMER, "identity_verified", CUSTOMER, value=True),
)
IDV = ("identity_verified", ["placed_by", "identity_verified"])
AMOUNT = ("amount", ["amount"])


@pytest.mark.requirement("I-PROVENANCE")
def test_an_item_has_the_values_of_its_edge_and_a_ref_to_it() -> None:
    first = retrieved(graph_of(*REFUND), query(AMOUNT))[0]
    assert first == EvidenceItem(
        evidence_ref="kg:order:ord_881#snapshot_kg_1",
        name="amount",
        subject=ORDER,
        predicate="amount",
        value=4200,
        origin="session:import_1",
        integrity="trusted",
        classification="INTERNAL",
        observed_at_us=OBSERVED_US,
        digest=content_address({"subject": ORDER, "predicate": "amount", "value": 4200}),
        hop=1,
    )


def test_edges_of_one_subject_share_a_ref_and_differ_in_digest() -> None:
    ours = [item for item in retrieved(graph_of(*REFUND), query()) if item.subject == ORDER]
    assert len(ours) == 2
    assert len({item.evidence_ref for item in ours}) == 1
    assert len({item.digest for item in ours}) == 2


def test_an_edge_without_a_value_has_its_end_as_value_and_null_is_a_value() -> None:
    items = retrieved(graph_of(edge(ORDER, "placed_by", CUSTOMER), edge(ORDER, "note", ORDER, value=None)), query())
    assert {item.predicate: item.value for item in items} == {"placed_by": CUSTOMER, "note": None}


def test_a_path_of_trusted_edges_gives_the_name_to_its_end() -> None:
    items = retrieved(graph_of(*REFUND), query(IDV, AMOUNT))
    assert names(items) == {"identity_verified": True, "amount": 4200}
    assert [(item.predicate, item.hop) for item in items] == [("amount", 1), ("placed_by", 1), ("identity_verified", 2)]
    assert unmet(graph_of(*REFUND), query(IDV, AMOUNT)) == set()


def test_a_path_goes_along_the_edges_and_never_back() -> None:
    graph = graph_of(edge(CUSTOMER, "placed", ORDER), edge(CUSTOMER, "identity_verified", CUSTOMER, value=True))
    asked = query(("identity_verified", ["placed", "identity_verified"]))
    assert names(retrieved(graph, asked)) == {}
    assert unmet(graph, asked) == {"identity_verified"}


def test_a_seed_that_is_not_there_names_nothing() -> None:
    path = EvidencePath(name="amount", seed=1, path=("amount",))
    asked = query().model_copy(update={"named": (path,)})
    assert names(retrieved(graph_of(*REFUND), asked)) == {}
    assert unmet(graph_of(*REFUND), asked) == {"amount"}


@pytest.mark.requirement("I-CONFLICT")
def test_several_values_are_a_conflict_and_all_of_them_stay_visible_without_a_name() -> None:
    graph = graph_of(*REFUND, edge(ORDER, "amount", ORDER, value=9000))
    items = retrieved(graph, query(AMOUNT, IDV))
    assert names(items) == {"identity_verified": True}
    assert sorted(item.value for item in items if item.predicate == "amount") == [4200, 9000]
    assert unmet(graph, query(AMOUNT, IDV)) == {"amount"}


@pytest.mark.requirement("I-CONFLICT")
def test_values_that_look_alike_and_are_not_equal_are_a_conflict() -> None:
    for one, other in [(1, True), (0, False), ("4200", 4200), (None, 0)]:
        graph = graph_of(edge(ORDER, "amount", ORDER, value=one), edge(ORDER, "amount", ORDER, value=other))
        assert unmet(graph, query(AMOUNT)) == {"amount"}


def test_two_sources_that_agree_are_no_conflict_and_the_newest_is_named() -> None:
    newer = edge(ORDER, "amount", ORDER, value=4200, evidence_ref="session:later", observed_at=OBSERVED_US + 5)
    items = retrieved(graph_of(*REFUND, newer), query(AMOUNT))
    assert [(item.origin, item.name) for item in items if item.predicate == "amount"] == [
        ("session:later", "amount"),
        ("session:import_1", None),
    ]


@pytest.mark.requirement("I-UNTRUSTED")
@pytest.mark.parametrize("broken", [1, 2])
def test_an_untrusted_edge_anywhere_on_the_path_gives_no_name(broken: int) -> None:
    edges = [dict(one) for one in REFUND]
    edges[broken]["integrity"] = "untrusted"
    assert names(retrieved(graph_of(*edges), query(IDV))) == {}
    assert unmet(graph_of(*edges), query(IDV)) == {"identity_verified"}


@pytest.mark.requirement("I-UNTRUSTED")
def test_an_untrusted_statement_can_neither_take_nor_spoil_a_name() -> None:
    graph = graph_of(*REFUND, edge(ORDER, "amount", ORDER, value=1, integrity="untrusted"))
    items = retrieved(graph, query(AMOUNT))
    assert names(items) == {"amount": 4200}
    assert [item.name for item in items if item.integrity == "untrusted"] == [None]


def test_one_edge_may_answer_two_requirements_with_an_item_for_each() -> None:
    items = retrieved(graph_of(*REFUND), query(AMOUNT, ("refundable", ["amount"])))
    assert names(items) == {"amount": 4200, "refundable": 4200}
    assert len({item.digest for item in items if item.name}) == 1


def test_one_name_asked_for_twice_must_be_answered_twice_and_alike() -> None:
    graph = graph_of(*REFUND, edge(ORDER, "total", ORDER, value=4200), edge(ORDER, "tax", ORDER, value=5))
    assert names(retrieved(graph, query(AMOUNT, ("amount", ["total"])))) == {"amount": 4200}
    for other in ("tax", "nothing"):
        assert unmet(graph, query(AMOUNT, ("amount", [other]))) == {"amount"}
        assert names(retrieved(graph, query(AMOUNT, ("amount", [other])))) == {}


@pytest.mark.requirement("I-CONFLICT", "I-HOPS")
def test_no_bound_hides_a_conflict() -> None:
    hidden = edge(ORDER, "amount", ORDER, value=9000)
    graph = graph_of(*REFUND, hidden)
    for bounds in ({"fan_out": 1}, {"fan_out": 2}, {"limit": 1}, {"limit": 2}, {"limit": 3}):
        items = retrieved(graph, query(AMOUNT, **bounds))
        assert names(items) == {}
        assert len(items) <= bounds.get("limit", 200)
        assert unmet(graph, query(AMOUNT, **bounds)) == {"amount"}


@pytest.mark.requirement("I-CONFLICT", "I-HOPS")
def test_no_bound_hides_evidence() -> None:
    many = [edge(CUSTOMER, "bought", f"item:{number:03}") for number in range(60)]
    graph = graph_of(*REFUND, *many)
    for bounds in ({}, {"fan_out": 1}, {"limit": 2}):
        items = retrieved(graph, query(AMOUNT, IDV, **bounds))
        assert names(items) == {"amount": 4200, "identity_verified": True}
        assert {item.name: item.hop for item in items if item.name} == {"amount": 1, "identity_verified": 2}
        assert len(items) <= bounds.get("limit", 200)


def test_a_step_with_more_edges_than_are_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contextos.intelligence.retrieval.MAX_STEP_EDGES", 2)
    graph = graph_of(*(edge(ORDER, "amount", f"item:{number}", value=7) for number in range(3)))
    assert unmet(graph, query(AMOUNT, fan_out=1)) == {"amount"}


@pytest.mark.requirement("I-HOPS")
def test_a_path_longer_than_the_hops_is_cut_off_although_an_edge_of_it_is_seen() -> None:
    round_trip = graph_of(edge(ORDER, "placed_by", CUSTOMER), edge(CUSTOMER, "last_order", ORDER))
    asked = query(("last", ["placed_by", "last_order"]), hops=1)
    assert len(retrieved(round_trip, asked)) == 2
    assert unmet(round_trip, asked) == {"last"}


def test_without_hops_or_seeds_nothing_is_found() -> None:
    assert retrieved(graph_of(*REFUND), query(AMOUNT, hops=0)) == ()
    assert retrieved(graph_of(*REFUND), query(AMOUNT, seeds=())) == ()


@pytest.mark.requirement("I-SNAPSHOT")
def test_an_old_snapshot_answers_as_it_did_whatever_came_later() -> None:
    graph = graph_of(*REFUND)
    before = retrieved(graph, query(AMOUNT, IDV))
    found = now(graph.neighbourhood([ORDER], at=1, hops=1, fan_out=9, limit=9))
    amount = next(one["edge_id"] for one in found if one["predicate"] == "amount")
    now(
        graph.put(
            [], [edge(ORDER, "amount", ORDER, value=1, retracts=amount), edge(ORDER, "colour", ORDER, value="red")]
        )
    )
    assert retrieved(graph, query(AMOUNT, IDV)) == before
    assert names(retrieved(graph, query(AMOUNT, at=2))) == {"amount": 1}
    assert now(GraphKnowledge(graph).snapshot()) == "kg_2"


@pytest.mark.requirement("I-SNAPSHOT-KNOWN")
@pytest.mark.parametrize(
    "snapshot", ["kg_2", "kg_01", "kg_-1", "kg_", "1", "kg_1 ", "kg_2026_05_03_T0930", "kg_" + "9" * 40]
)
def test_a_snapshot_that_this_graph_does_not_have_is_refused(snapshot: str) -> None:
    with pytest.raises(NotFound, match="no snapshot"):
        retrieved(graph_of(*REFUND), query().model_copy(update={"snapshot": snapshot}))


def test_an_empty_graph_has_a_snapshot_and_no_evidence() -> None:
    graph = MemoryGraph()
    assert now(GraphKnowledge(graph).snapshot()) == "kg_0"
    assert retrieved(graph, query(AMOUNT, at=0)) == ()
    assert unmet(graph, query(AMOUNT, at=0)) == {"amount"}


def test_an_edge_that_makes_no_evidence_is_an_integrity_error() -> None:
    for broken in (edge(ORDER, "at", "x", evidence_ref="x" * 2000), edge("no entity", "at", ORDER)):
        with pytest.raises(Integrity, match="is not valid evidence"):
            retrieved(graph_of(broken), query())


@given(st.permutations(range(6)))
def test_the_order_of_import_never_shows(order: list[int]) -> None:
    edges = [
        *REFUND,
        edge(ORDER, "amount", ORDER, value=4200, evidence_ref="session:b"),
        edge(ORDER, "item", "item:1"),
        edge("item:1", "price", "item:1", value=5),
    ]
    assert retrieved(graph_of(*(edges[at] for at in order)), query(AMOUNT, IDV)) == retrieved(
        graph_of(*edges), query(AMOUNT, IDV)
    )


NODES = st.sampled_from(["n:a", "n:b", "n:c", "n:d"])
EDGES = st.lists(
    st.builds(
        lambda src, predicate, dst, trusted, value: edge(
            src, predicate, dst, integrity=trusted, **({} if value is None else {"value": value})
        ),
        NODES,
        st.sampled_from("pq"),
        NODES,
        st.sampled_from(["trusted", "untrusted"]),
        st.none() | st.integers(0, 2),
    ),
    max_size=12,
    unique_by=lambda one: content_address(one),
)


def naive(edges: list[dict[str, Any]], seed: str, path: list[str]) -> list[Any]:
    """Every value at the end of the path, over the whole graph and without bounds."""
    reached, values = {seed}, []
    for predicate in path:
        step = [
            one
            for one in edges
            if one["src"] in reached and one["predicate"] == predicate and one["integrity"] == "trusted"
        ]
        values, reached = [one.get("value", one["dst"]) for one in step], {one["dst"] for one in step}
    return values


@pytest.mark.requirement("I-CONFLICT", "I-HOPS")
@given(
    EDGES,
    st.lists(st.sampled_from("pq"), min_size=1, max_size=3),
    st.integers(0, 3),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_a_name_given_under_any_bounds_is_the_one_value_of_the_whole_graph(
    edges: list[dict[str, Any]], path: list[str], hops: int, fan_out: int, limit: int
) -> None:
    graph = graph_of(*edges)
    asked = query(("it", path), seeds=["n:a"], at=now(graph.head()), hops=hops, fan_out=fan_out, limit=limit)
    items = retrieved(graph, asked)
    assert len(items) <= limit
    if named := names(items):
        values = naive(edges, "n:a", path)
        assert {content_address([value]) for value in values} == {content_address([named["it"]])}
    else:
        assert unmet(graph, asked) == {"it"}


@given(EDGES, st.lists(st.sampled_from("pq"), min_size=1, max_size=3))
def test_within_wide_bounds_every_unambiguous_value_gets_its_name(edges: list[dict[str, Any]], path: list[str]) -> None:
    graph = graph_of(*edges)
    asked = query(("it", path), seeds=["n:a"], at=now(graph.head()), hops=4)
    values = {content_address([value]) for value in naive(edges, "n:a", path)}
    assert bool(names(retrieved(graph, asked))) == (len(values) == 1)


def item(name: str | None = "amount", observed_at_us: int = OBSERVED_US) -> EvidenceItem:
    return retrieved(graph_of(*REFUND), query(AMOUNT))[0].model_copy(
        update={"name": name, "observed_at_us": observed_at_us}
    )


@pytest.mark.requirement("I-FRESH")
def test_a_stale_item_loses_its_name_and_stays() -> None:
    limited = [EvidencePath(name="amount", path=("amount",), max_age_s=60)]
    second = 1_000_000
    for age_us, admitted in [(0, True), (60 * second, True), (60 * second + 1, False), (-1, False)]:
        (kept,) = drop_stale_names([item()], limited, OBSERVED_US + age_us)
        assert kept == item("amount" if admitted else None)


def test_without_a_limit_of_age_every_item_is_admitted() -> None:
    items = [item(), item(None), item("other")]
    assert drop_stale_names(items, [EvidencePath(name="amount", path=("amount",))], 0) == tuple(items)
    assert drop_stale_names([], [], 0) == ()


@pytest.mark.parametrize(
    ("observed", "us"),
    [
        ("2026-05-04T09:31:30Z", 1_777_887_090_000_000),
        ("2026-05-04T09:31:30.5Z", 1_777_887_090_500_000),
        ("2026-05-04T09:31:30.123456789Z", 1_777_887_090_123_456),
        ("1969-12-31T23:59:59Z", -1_000_000),
        (7, 7),
        ("2026-05-04T11:31:30+02:00", 1_777_887_090_000_000),
    ],
)
def test_a_time_is_read_exactly(observed: Any, us: int) -> None:
    (found,) = retrieved(graph_of(edge(ORDER, "amount", ORDER, value=1, observed_at=observed)), query())
    assert found.observed_at_us == us


def edge_id(graph: MemoryGraph, predicate: str) -> str:
    head = now(graph.head())
    found = now(graph.neighbourhood([ORDER], at=head, hops=2, fan_out=99, limit=99))
    return next(one["edge_id"] for one in found if one["predicate"] == predicate)


@pytest.mark.requirement("I-SNAPSHOT")
def test_a_withdrawn_item_is_gone_at_the_head_and_still_there_at_its_snapshot() -> None:
    graph = graph_of(*REFUND)
    before = {one.name for one in retrieved(graph, query(AMOUNT))}
    now(graph.put([], [{"retracts": edge_id(graph, "amount"), "evidence_ref": "session:undo"}]))
    assert "amount" in before
    assert {one.name for one in retrieved(graph, query(AMOUNT))} == before
    assert "amount" not in {one.name for one in retrieved(graph, query(AMOUNT, at=2))}


def test_a_graph_of_another_tenant_answers_nothing_of_ours() -> None:
    assert retrieved(MemoryGraph(), query(AMOUNT, at=0)) == ()
