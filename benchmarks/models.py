"""Calls of models through the AI Gateway beside the same calls by others: `python -m benchmarks.models`.

The provider is on the loopback, in a process of its own (`benchmarks/model_provider.py`). A call of the gateway is all
that a run does for it: route, reserve, record, commit, send, settle, record, commit. Beside it stand

- the bare SDK `openai` and two commits of the same bytes as one row each, one call after the other;
- the proxy of LiteLLM, without a database, at 16 calls at once; its client is a socket and no library;
- the bare SDK, to the first piece of a streamed answer;
- an agent of ten calls of Pydantic AI in the durable wrapper of DBOS, whose tool is a step.

The proxy and the agent have an environment of their own, which `make bench-models` makes; without it they are left out.
The last part makes very many calls in one process and looks at its memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import model_runs, outside
from benchmarks.bars import folder, is_quick, note, ratio, report_bar, skip
from benchmarks.deployed import new_folder
from benchmarks.gateway import COMMITS, Raw, size
from benchmarks.http_api import free_port, is_live, process
from benchmarks.model_provider import SENTENCE
from benchmarks.refund_pack import TENANT
from benchmarks.streams import memory_mb
from contextos.action.models.gateway import ModelGateway
from contextos.action.models.questions import ModelQuestion
from contextos.contracts.ports.models import ModelCall, ModelMessage
from contextos.contracts.ports.seams import Journal

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / ".venv-model-peers"
NO_PEERS = "no environment of the peers; `make bench-models` makes it"

PROMPTS = {1_000: 2.0, 50_000: 6.0}
"""By the tokens of a prompt, the most milliseconds that a governed call takes beyond the bare one."""
BAR, OF_FIRST_TOKEN, OF_PROXY, OF_AGENT, OF_MEMORY = 1.5, 1.2, 3.0, 1.0, 1.05
AT_ONCE = 16
AGENT_CALLS = 10
CALLS_OF_A_RUN = 10
PROXY_KEY = f"sk-{secrets.token_hex(32)}"
"""The proxy does not start without one."""
WORKERS = (1, 2)
"""How many worker processes the proxy has; the best of its rates counts."""
LONGEST_START_S = 120
"""The proxy imports for ten seconds on an idle machine."""
SHARES = 5
"""Memory is read so often."""
LABELS = (
    "gateway call / bare SDK + the same commits",
    "gateway call beyond bare SDK + the same commits",
    f"calls/s, {AT_ONCE} at once: gateway / LiteLLM's proxy",
    "first token: gateway's sender / bare SDK",
    f"agent of {AGENT_CALLS} calls, own model: Pydantic AI with DBOS / ours",
    "memory of the process, largest / smallest after warm-up",
)


class NotStarted(Exception):
    """A peer does not answer. On a busy machine its workers can be replaced again and again before they do."""


def sdk(port: int) -> Any:
    """Return the SDK as a program makes it, without a second attempt."""
    from openai import AsyncOpenAI

    return AsyncOpenAI(api_key=model_runs.KEY, base_url=f"http://127.0.0.1:{port}/v1", max_retries=0)


def as_dicts(messages: Sequence[ModelMessage]) -> list[dict[str, str]]:
    return [{"role": one.role, "content": one.text} for one in messages]


def has_peers() -> bool:
    """Return whether the environment of the peers is there, whole."""
    return (PEERS / "locked").exists()


@contextmanager
def provider() -> Iterator[int]:
    """Run the provider, and give its port."""
    with process([sys.executable, str(HERE / "model_provider.py")]) as started:
        yield started["port"]


async def bare_ms(client: Any, messages: list[dict[str, str]]) -> float:
    """Return the milliseconds of a call by the SDK."""
    began = time.perf_counter_ns()
    answer = await client.chat.completions.create(
        model="agent-0", messages=messages, max_completion_tokens=model_runs.MAX_OUTPUT_TOKENS
    )
    took_ms = (time.perf_counter_ns() - began) / 1e6
    assert answer.choices[0].message.content == SENTENCE, answer
    return took_ms


class Calls:
    """Times calls of the gateway of a run, and after each the bare call and its commits; which is first alternates."""

    def __init__(self, store: outside.Watched, raw: Raw, client: Any) -> None:
        self._store, self._raw, self._client = store, raw, client
        self._prompts = {tokens: model_runs.messages(tokens) for tokens in PROMPTS}
        self._bare = {tokens: as_dicts(messages) for tokens, messages in self._prompts.items()}
        self._sizes = {tokens: [1_000] * COMMITS for tokens in PROMPTS}
        self.ours, self.bare, self.commits = ({tokens: list[float]() for tokens in PROMPTS} for _ in range(3))

    async def measure(self, gateway: ModelGateway, journal: Journal, first: ModelQuestion) -> None:
        for number in range(CALLS_OF_A_RUN):
            for tokens, prompt in self._prompts.items():
                asked = model_runs.question(first, f"{number}/{tokens}", prompt)
                if number % 2:
                    await self._beside(tokens)
                # Flush what was staged before: it does not belong to this call.
                await journal.commit()
                self._store.batches.clear()
                began = time.perf_counter_ns()
                answer = await gateway.ask(asked)
                # In the run the answer is durable with the next commit. Here it belongs to the call.
                await journal.commit()
                self.ours[tokens].append((time.perf_counter_ns() - began) / 1e6)
                assert model_runs.text_of(answer) == SENTENCE, answer
                assert len(self._store.batches) == COMMITS, "a call of a model is two commits"
                self._sizes[tokens] = [size(batch) for batch in self._store.batches]
                if not number % 2:
                    await self._beside(tokens)

    async def _beside(self, tokens: int) -> None:
        self.bare[tokens].append(await bare_ms(self._client, self._bare[tokens]))
        self.commits[tokens].append(self._raw.commit(self._sizes[tokens]) / 1e3)


async def measure_calls(path: Path, port: int, runs: int) -> None:
    """Measure calls one after the other. The first run does not count."""
    deployment, store = await model_runs.opened(path, port, "agent-0")
    async with sdk(port) as client:
        calls = Calls(store, Raw(path / "raw.db"), client)
        for number in range(runs + 1):
            with model_runs.measured_by(calls.measure):
                await model_runs.run(deployment, number, 0)
            if not number:
                # As docs/operating.md says to programs that embed the runtime.
                gc.collect()
                gc.freeze()
    outside.close(deployment)
    for tokens, most_ms in PROMPTS.items():
        ours, bare, commits = (one[tokens][CALLS_OF_A_RUN:] for one in (calls.ours, calls.bare, calls.commits))
        both = [one + other for one, other in zip(bare, commits, strict=True)]
        middle, best = ratio(ours, both)
        about = f", {tokens // 1000}k tokens"
        report_bar(f"{LABELS[0]}{about}", middle, BAR, "x", best=best, against=both)
        beyond = [one - other for one, other in zip(ours, both, strict=True)]
        report_bar(f"{LABELS[1]}{about}, p50", median(beyond), most_ms, " ms", best=min(ours) - min(both))
        text = f"{median(ours):9.2f} ms; {median(bare):.2f} ms, {median(commits):.2f} ms in {COMMITS} commits"
        note(f"gateway call; bare SDK, the commits{about}, p50", text)


class AtOnce:
    """Makes calls by the gateways of `AT_ONCE` runs that begin together, from the first call to the last answer."""

    def __init__(self, calls: int) -> None:
        self._calls, self._prompt = calls, model_runs.messages(1_000)
        self.began = self.ended = 0.0

    async def measure(self, gateway: ModelGateway, _journal: Journal, first: ModelQuestion) -> None:
        self.began = self.began or time.perf_counter()
        for number in range(self._calls):
            asked = model_runs.question(first, str(number), self._prompt)
            assert model_runs.text_of(await gateway.ask(asked)) == SENTENCE
        self.ended = time.perf_counter()


async def our_rate(deployment: Any, first: int, calls: int) -> float:
    """Return the calls a second of `AT_ONCE` runs, each of which makes so many."""
    measured = AtOnce(calls)
    with model_runs.measured_by(measured.measure):
        async with asyncio.TaskGroup() as tasks:
            for number in range(AT_ONCE):
                tasks.create_task(model_runs.run(deployment, first + number, 0))
    return AT_ONCE * calls / (measured.ended - measured.began)


async def proxy_rate(port: int, calls: int) -> float:
    """Return the calls a second of `AT_ONCE` connections to a proxy, each of which makes so many."""
    messages = as_dicts(model_runs.messages(1_000))
    body = json.dumps({"model": "bench", "messages": messages, "max_tokens": model_runs.MAX_OUTPUT_TOKENS}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {PROXY_KEY}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(calls):
            writer.write(request)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
            answer = await reader.readexactly(length)
            assert lines[0].split()[1] == "200", answer
            assert json.loads(answer)["choices"][0]["message"]["content"] == SENTENCE, answer
        writer.close()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(connection())
    return AT_ONCE * calls / (time.perf_counter() - began)


@contextmanager
def proxy(path: Path, provider: int, workers: int) -> Iterator[int]:
    """Run LiteLLM's proxy over a folder, and give its port once it answers."""
    port = free_port()
    model = {"model": "openai/agent-0", "api_base": f"http://127.0.0.1:{provider}/v1", "api_key": model_runs.KEY}
    config = {
        "model_list": [{"model_name": "bench", "litellm_params": model}],
        "litellm_settings": {"num_retries": 0, "telemetry": False},
    }
    (path / "litellm.json").write_text(json.dumps(config), "utf-8")
    options = ["--host", "127.0.0.1", "--port", str(port), "--num_workers", str(workers)]
    command = [str(PEERS / "bin" / "litellm"), "--config", str(path / "litellm.json"), *options]
    # It would ask for its list of prices, and the provider has none.
    environment = {
        **os.environ,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MASTER_KEY": PROXY_KEY,
    }
    log = path / "litellm.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(command, cwd=path, env=environment, stdout=out, stderr=out, start_new_session=True) as server,
    ):
        try:
            if not is_live(server, port, "/health/liveliness", LONGEST_START_S):
                last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
                raise NotStarted(f"it does not start within {LONGEST_START_S} s: {last}")
            yield port
        finally:
            server.terminate()
            server.wait(60)


async def measure_rates(path: Path, port: int, rounds: int, calls: int) -> None:
    """Measure calls at once. The first round of each proxy does not count."""
    deployment, _ = await model_runs.opened(path, port, "agent-0")
    every, ratios, said, made = list[float](), list[tuple[float, float]](), list[str](), 0
    for workers in WORKERS if has_peers() else (0,):
        ours, theirs = list[float](), list[float]()
        try:
            with proxy(new_folder(path, f"proxy{workers}"), port, workers) if workers else nullcontext() as of_proxy:
                for _ in range(rounds + 1):
                    ours.append(await our_rate(deployment, made, calls))
                    made += AT_ONCE
                    if of_proxy is not None:
                        theirs.append(await proxy_rate(of_proxy, calls))
        except NotStarted as fault:
            note(f"LiteLLM's proxy with {workers} workers", str(fault))
            continue
        every += ours[1:]
        if theirs:
            ratios.append(ratio(ours[1:], theirs[1:]))
            said.append(f"{median(theirs[1:]):.0f} with {workers} workers")
    outside.close(deployment)
    if ratios:
        middle, best = min(ratios)
        report_bar(LABELS[2], middle, OF_PROXY, "x", best=best, at_least=True)
        note("calls/s of LiteLLM's proxy", f"{', '.join(said)}; without a database")
    else:
        skip(LABELS[2], "the proxy does not start" if has_peers() else NO_PEERS)
    if every:
        note(f"calls/s of the gateway, {AT_ONCE} runs at once, two commits each", f"{median(every):9.0f}")


async def measure_streams(port: int, calls: int) -> None:
    """Measure the time to the first piece of an answer. The first tenth does not count."""
    prompt = model_runs.messages(1_000)
    client, sender, bodies = sdk(port), model_runs.sender(port), as_dicts(prompt)
    call = ModelCall(
        profile=model_runs.model_profile(port, "agent-0", streams=True),
        messages=prompt,
        max_output_tokens=model_runs.MAX_OUTPUT_TOKENS,
        timeout_ms=30_000,
        first_token_ms=30_000,
        egress=(f"127.0.0.1:{port}",),
    )

    async def our_ms() -> float:
        pieces = list[tuple[float, str]]()
        began = time.perf_counter()
        reply = await sender.send(TENANT, call, on_text=lambda piece: pieces.append((time.perf_counter(), piece)))
        assert (reply.outcome, reply.text) == ("answered", SENTENCE), reply
        assert "".join(piece for _, piece in pieces) == SENTENCE
        assert reply.usage is not None
        return (pieces[0][0] - began) * 1e3

    async def their_ms() -> float:
        pieces = list[tuple[float, str]]()
        began = time.perf_counter()
        stream = await client.chat.completions.create(
            model="agent-0",
            messages=bodies,
            max_completion_tokens=model_runs.MAX_OUTPUT_TOKENS,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                pieces.append((time.perf_counter(), chunk.choices[0].delta.content))
        assert "".join(piece for _, piece in pieces) == SENTENCE
        return (pieces[0][0] - began) * 1e3

    ours, theirs = [], []
    for number in range(calls):
        if number % 2:
            theirs.append(await their_ms())
        ours.append(await our_ms())
        if not number % 2:
            theirs.append(await their_ms())
    await client.close()
    warm = calls // 10
    middle, best = ratio(ours[warm:], theirs[warm:])
    report_bar(LABELS[3], middle, OF_FIRST_TOKEN, "x", best=best, against=theirs[warm:])
    note("first token, ours, bare SDK, p50", f"{median(ours[warm:]):9.2f} ms, {median(theirs[warm:]):.2f} ms")


@contextmanager
def peer_agent(path: Path, port: int) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Run the agent of the peer in a process of its own, and give what makes it run once and returns what it says."""
    command = [str(PEERS / "bin" / "python"), str(HERE / "model_peer_dbos.py"), str(path / "dbos.db"), str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        to, answers = peer.stdin, peer.stdout
        assert to is not None
        assert answers is not None

        def run(name: str) -> dict[str, Any]:
            print(name, file=to, flush=True)
            told: dict[str, Any] = json.loads(answers.readline())
            return told

        yield run
        to.close()


async def measure_agents(path: Path, port: int, rounds: int) -> None:
    """Measure whole agents. The first round does not count."""
    deployment, _ = await model_runs.opened(path, port, f"agent-{AGENT_CALLS}")
    ours, theirs = [], []
    with peer_agent(path, port) if has_peers() else nullcontext() as peer:
        for number in range(rounds + 1):
            began = time.perf_counter_ns()
            await model_runs.run(deployment, number, AGENT_CALLS)
            ours.append((time.perf_counter_ns() - began) / 1e6)
            if peer is not None:
                told = peer(f"run_{number}")
                assert (told["output"], told["calls"]) == ("done", AGENT_CALLS), told
                theirs.append(told["ms"])
    outside.close(deployment)
    if theirs:
        middle, best = ratio(theirs[1:], ours[1:])
        report_bar(LABELS[4], middle, OF_AGENT, "x", best=best, at_least=True, against=ours[1:])
        note("Pydantic AI with DBOS, p50", f"{median(theirs[1:]):9.2f} ms")
    else:
        skip(LABELS[4], NO_PEERS)
    note(f"agent of {AGENT_CALLS} calls, own model, p50", f"{median(ours[1:]):9.2f} ms")


def kept_mb() -> float:
    """Return the resident memory of this process in MB after glibc gave back the free parts of its heap."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return memory_mb(os.getpid())


async def memory_by_shares(path: Path, port: int, calls: int) -> tuple[list[float], list[float]]:
    """Return the resident memory of this process after each share of so many calls, and what is kept before and after.

    One more share is the warm-up. With 100,000 calls it is 400 runs: after 256 every order was asked about once, and
    the tables of the journal (`KEPT_BYTES`) are full.
    """
    deployment, store = await model_runs.opened(path, port, "agent-0")
    of_a_run = min(50, calls // SHARES // AT_ONCE or 1)
    share, found, kept, number = max(calls // SHARES // (of_a_run * AT_ONCE), 1), list[float](), list[float](), 0
    for at in range(SHARES + 1):
        for _ in range(share):
            await our_rate(deployment, number, of_a_run)
            number += AT_ONCE
            # What the watched store has seen is the benchmark's and not the runtime's.
            store.batches.clear()
            store.commits_us.clear()
        gc.collect()
        found.append(memory_mb(os.getpid()))
        # Only before and after: it would change the shares between them.
        if at in (0, SHARES):
            kept.append(kept_mb())
    outside.close(deployment)
    return found[1:], kept


def measure_memory(port: int, calls: int) -> None:
    """Measure memory in a new process, so that nothing else is in it."""
    command = [sys.executable, "-m", "benchmarks.models", "--memory", str(port), str(calls)]
    told = subprocess.run(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True).stdout
    found, kept = json.loads(told)
    report_bar(LABELS[5], max(found) / min(found), OF_MEMORY, "x")
    shares = ", ".join(f"{mb:.1f} at {100 * (at + 1) // SHARES} %" for at, mb in enumerate(found))
    note(f"MB of the process in {calls:,} calls", shares)
    note("of them kept, before and after (`malloc_trim`)", f"{kept[0]:.1f}; {kept[1]:.1f}")


def memory_of_this_process(port: int, calls: int) -> None:
    """Print the memory of this process as JSON."""
    with folder() as name:
        print(json.dumps(asyncio.run(memory_by_shares(Path(name), port, calls))))


def main() -> None:
    if sys.argv[1:2] == ["--memory"]:
        memory_of_this_process(int(sys.argv[2]), int(sys.argv[3]))
        return
    quick = is_quick()
    with provider() as port, folder() as name:
        path = Path(name)
        asyncio.run(measure_calls(new_folder(path, "calls"), port, 2 if quick else 20))
        asyncio.run(measure_rates(new_folder(path, "rates"), port, 2 if quick else 5, 10 if quick else 60))
        asyncio.run(measure_streams(port, 40 if quick else 400))
        asyncio.run(measure_agents(new_folder(path, "agents"), port, 4 if quick else 25))
        measure_memory(port, 8_000 if quick else 100_000)
        note("the load of the machine", f"{os.getloadavg()[0]:9.1f}")


if __name__ == "__main__":
    main()
