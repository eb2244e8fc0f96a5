"""Reads a graph, and accepts only edges that somebody wrote by a sealed act in the stream `control`.

The rows of the graph are found by their columns. An edge counts only if the act of its commit names it, and no act
withdrew it. So an edge that was made up, altered, moved to another commit or brought back is not evidence. An edge
whose row says that it was withdrawn is left out only if an act withdrew it.
Source: docs/design/journal.md, "Rows that the journal proves".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, Protocol

import orjson

from contextos.contracts.encoding.codec import parse
from contextos.contracts.entries.linked import ASKED_BYTES, KEPT_BYTES, RecentlyUsed
from contextos.contracts.entries.shared import WithdrawnFact, WrittenFacts
from contextos.contracts.envelopes.evidence import EdgeRow, GraphCommit, commit_key, crowded_nodes, edge_digest
from contextos.contracts.journal import CONTROL, Draft, Entry
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Graph
from contextos.errors import ChainBroken, Integrity, InvalidInput, Unavailable
from contextos.trust.approvals.acts import counted_act, read_act
from contextos.trust.rows.memories import MAX_READS

_MEMORY_PER_EDGE: Final = 200
"""The memory that the id and the digest of an edge take, about."""
_PAGE_EDGES: Final = 256

ProvedFacts = partial(RecentlyUsed[Any], KEPT_BYTES)
"""Makes the table of proved facts. By tenant and commit number: the digests that the commit's sealed act states for its
edges, which never change. By tenant, question and exact edges: the nodes all of whose edges these are.
"""


class ControlLines(Protocol):
    """The part of the tenant's store that a graph reads, or of a copy that was read from there."""

    async def lines(self, stream: str, *keys: str) -> Sequence[Entry]: ...


class ProvedGraph:
    """The port `Graph` over one tenant's graph. It raises `Integrity` for an edge that no sealed act covers."""

    def __init__(self, tenant_id: str, graph: Graph, store: ControlLines, keys: Keys, known: RecentlyUsed[Any]) -> None:
        self._tenant, self._graph, self._store, self._keys, self._known = tenant_id, graph, store, keys, known

    async def head(self) -> int:
        """Return the newest commit. Raises `Integrity` if it is not the last commit of a sealed act."""
        for _ in range(MAX_READS):
            head = await self._graph.head()
            lines = await self._store.lines(CONTROL, commit_key(head), commit_key(head + 1))
            commit_keys = {line.key for line in lines if line.kind == "graph.written" and counted_act(line, self._keys)}
            if commit_keys == ({commit_key(head)} if head else set()):
                return head
            if await self._graph.head() == head:
                detail = f"the graph says that its newest commit is {head}, and the acts in `control` say another one"
                raise Integrity(f"{detail}; no fact counts: find out who wrote it")
        raise Unavailable("store", "facts are written faster than the graph can be read")

    async def neighbourhood(
        self, seeds: Sequence[str], *, at: int, hops: int, fan_out: int, limit: int
    ) -> Sequence[Mapping[str, Any]]:
        """Return the edges around the seeds. Raises `Integrity` if no sealed act states an edge as it is."""
        edges = await self._graph.neighbourhood(seeds, at=at, hops=hops, fan_out=fan_out, limit=limit)
        # Equal values of Python can differ as JSON (1, 1.0 and true), so the edges are compared as bytes.
        question = (self._tenant, *seeds, at, hops, fan_out, limit, content := orjson.dumps(edges))
        complete_nodes = self._known.get(question)
        if complete_nodes is None or (edges and await self._store.lines(CONTROL, *[edge["edge_id"] for edge in edges])):
            await self._require_proved(edges, at)
            size = ASKED_BYTES + sum(map(len, seeds)) + len(content)
            complete_nodes = self._known.keep(question, _complete_nodes(seeds, edges, hops, fan_out, limit), size)
        await self._require_withdrawn(complete_nodes, None, at)
        return edges

    async def step(
        self,
        sources: Sequence[str],
        predicate: str | None,
        *,
        at: int,
        limit: int,
        after: str = "",
        ended: bool = False,
    ) -> Sequence[Mapping[str, Any]]:
        """Return the edges with this predicate, or with any. Raises as `neighbourhood`. An act has to prove the end of
        each edge that is returned, or left out, as ended.
        """
        edges = await self._graph.step(sources, predicate, at=at, limit=limit, after=after, ended=ended)
        await self._require_proved(edges, at=0 if ended else at)
        for edge in edges:
            if edge["src"] not in sources or predicate not in (None, edge["predicate"]):
                _refuse(edge["edge_id"], "is stored under another subject or predicate than it states")
        # With `ended` the last edge itself is one whose end has to be proved.
        last = edges[-1]["edge_id"] + ended * "\0" if edges and len(edges) == limit else None
        await self._require_withdrawn(sources, predicate, at, after, last)
        return edges

    async def rows(self, *, after: str = "", limit: int = 1000) -> Sequence[EdgeRow]:
        return await self._graph.rows(after=after, limit=limit)

    async def plan(self, nodes: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]) -> GraphCommit:
        return await self._graph.plan(nodes, edges)

    async def put(
        self,
        nodes: Sequence[Mapping[str, Any]],
        edges: Sequence[Mapping[str, Any]],
        *,
        acts: Sequence[Draft] = (),
        expect: int | None = None,
    ) -> int:
        return await self._graph.put(nodes, edges, acts=acts, expect=expect)

    async def _require_proved(self, edges: Sequence[Mapping[str, Any]], at: int) -> None:
        if not edges:
            return
        commits = {edge["commit"] for edge in edges}
        cached = {number: self._known.get((self._tenant, number)) for number in commits}
        uncached = [number for number, digests in cached.items() if digests is None]
        keys = [commit_key(number) for number in uncached]
        # An act about an edge has the id of the edge as its key: only a withdrawal is one.
        lines = await self._store.lines(CONTROL, *keys, *(edge["edge_id"] for edge in edges))
        by_commit = {number: digests or self._written_digests(number, lines) for number, digests in cached.items()}
        withdrawn = {fact.edge_id: fact.commit for fact in self._withdrawals(lines)}
        for edge in edges:
            edge_id, number = edge["edge_id"], edge["commit"]
            if by_commit[number].get(edge_id) != edge_digest(edge):
                _refuse(edge_id, f"is not what the act of `{commit_key(number)}` states, or no such act is sealed")
            if withdrawn.get(edge_id, at + 1) <= at:
                _refuse(edge_id, f"was withdrawn at `{commit_key(withdrawn[edge_id])}`")
        for number in uncached:
            self._known.keep((self._tenant, number), by_commit[number], len(by_commit[number]) * _MEMORY_PER_EDGE)

    async def _require_withdrawn(
        self, sources: Sequence[str], predicate: str | None, at: int, after: str = "", last: str | None = None
    ) -> None:
        """Check that an act withdrew each edge of these sources that its row calls ended, before the id `last`."""
        while sources:
            ended = await self._graph.step(sources, predicate, at=at, limit=_PAGE_EDGES, after=after, ended=True)
            ids = [edge["edge_id"] for edge in ended if last is None or edge["edge_id"] < last]
            lines = await self._store.lines(CONTROL, *ids) if ids else ()
            withdrawn = {fact.edge_id for fact in self._withdrawals(lines) if fact.commit <= at}
            for edge_id in ids:
                if edge_id not in withdrawn:
                    _refuse(edge_id, f"was withdrawn by `{commit_key(at)}` as its row says, and no sealed act did that")
            if len(ids) < _PAGE_EDGES:
                return
            after = ids[-1]

    def _written_digests(self, number: int, lines: Iterable[Entry]) -> Mapping[str, str]:
        acts = [line for line in lines if line.kind == "graph.written" and line.key == commit_key(number)]
        facts = [parse(WrittenFacts, self._arguments(line)) for line in acts]
        # A large commit has several acts. A copy of a sealed act states its number too, and changes nothing.
        return {edge_id: digest for fact in facts if fact.commit == number for edge_id, digest in fact.edges.items()}

    def _withdrawals(self, lines: Iterable[Entry]) -> Iterable[WithdrawnFact]:
        for line in lines:
            if line.kind == "graph.withdrawn":
                yield parse(WithdrawnFact, self._arguments(line))

    def _arguments(self, line: Entry) -> dict[str, Any]:
        return dict(read_act(line, self._keys).act.arguments)


def _complete_nodes(
    seeds: Sequence[str], edges: Sequence[Mapping[str, Any]], hops: int, fan_out: int, limit: int
) -> list[str]:
    """Return the nodes all of whose edges these are. Raises `Integrity` for an edge that is not around the seeds."""
    inner_nodes, hop_nodes, hop = set(seeds), set[str](), 1
    for edge in edges:
        if edge["hop"] != hop:
            # The nearest edges are first.
            inner_nodes, hop_nodes, hop = inner_nodes | hop_nodes, set(), edge["hop"]
        src, dst = edge["src"], edge["dst"]
        if src not in inner_nodes and dst not in inner_nodes:
            _refuse(edge["edge_id"], "is stored under other ends than those that it states")
        hop_nodes |= {src, dst}
    # What requires facts asks `step` about a node with more edges than this.
    complete = inner_nodes if hop >= hops else inner_nodes | hop_nodes
    return [*complete.difference(crowded_nodes(edges, fan_out))] if len(edges) < limit else []


def written_fact_fault(
    control: Sequence[Entry], rows: Iterable[EdgeRow], heads: tuple[int, int], keys: Keys
) -> str | None:
    """Return what is wrong with the edges of a graph, or None: each must be as the acts in `control` left it.

    `rows` are all edges. `heads` are the newest commits before the rows were read and after `control` was read.
    `control` is read last, so edges that are written meanwhile can be in the acts alone.
    """
    written, withdrawn, newest = _stated_edges(control, keys)
    for row in rows:
        if written.pop(row.edge_id, None) != (row.written, edge_digest(row.statement)):
            return f"the edge `{row.edge_id}` of the graph is not as an act left it"
        columns = (row.src, row.predicate, row.dst)
        if columns != tuple(row.statement.get(name) for name in ("src", "predicate", "dst")):
            return f"the edge `{row.edge_id}` of the graph is stored under other ends than those that it states"
        ended = None if row.withdrawn is None else (row.withdrawn, row.withdrawn_ref)
        act = withdrawn.pop(row.edge_id, None)
        if ended != act and not (ended is None and act is not None and act[0] > heads[0]):
            return f"the edge `{row.edge_id}` of the graph was not withdrawn as it says"
    missing = [edge_id for edge_id, (commit, _) in [*written.items(), *withdrawn.items()] if commit <= heads[0]]
    if missing:
        return f"the edge `{min(missing)}` of the graph is gone"
    if newest > heads[1]:
        return f"the newest commit of the graph is {heads[1]}, and an act made {newest}"
    return None


def _stated_edges(
    control: Sequence[Entry], keys: Keys
) -> tuple[dict[str, tuple[int, str]], dict[str, tuple[int, str]], int]:
    """Return the edges that the acts wrote (commit and digest), the edges that they withdrew (commit and evidence), and
    the number of the last commit.
    """
    stated: dict[str, tuple[int, str]] = {}
    withdrawn: dict[str, tuple[int, str]] = {}
    newest = 0
    for entry in control:
        if entry.kind not in ("graph.written", "graph.withdrawn"):
            continue
        try:
            arguments = dict(read_act(entry, keys).act.arguments)
            if entry.kind == "graph.written":
                written = parse(WrittenFacts, arguments)
                newest = max(newest, written.commit)
                stated |= {edge_id: (written.commit, digest) for edge_id, digest in written.edges.items()}
            else:
                fact = parse(WithdrawnFact, arguments)
                withdrawn[fact.edge_id] = (fact.commit, fact.evidence_ref)
        except InvalidInput as error:
            raise ChainBroken(CONTROL, entry.seq, f"is not an act on the graph: {error}") from None
    return stated, withdrawn, newest


def _refuse(edge_id: str, problem: str) -> NoReturn:
    raise Integrity(f"the edge `{edge_id}` of the graph {problem}; it is not evidence: find out who wrote it")
