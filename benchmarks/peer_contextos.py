"""ContextOS as one of the benchmark peers: the same request, tools, amounts and durability.

It does more than the peers: the approver signs, approvals are bound to arguments and evidence, heads are signed, the
record is sealed and replays. Run it from the peers' folder, whose `workload` and `harness` it uses:

    cd ../shared/bench && BENCH_PYTHON=.../python python compare.py peer_*.py ../../main/benchmarks/peer_contextos.py
"""

import asyncio
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.environ.get("BENCH_PEERS", os.getcwd()), str(HERE.parent / "src"), str(HERE.parent)]

from harness import Peer, check, main, timed_import  # noqa: E402

with timed_import():
    from benchmarks import outside, refund_pack
    from contextos.deployment.deployment import Deployment


TOKEN_REF = outside.request(0, 900)["user"]["delegation"]["token_ref"]


# --- user code
class ContextOS(Peer):
    name = "contextos"

    def __init__(self, directory, filler):
        super().__init__(directory, filler)
        self.loop = asyncio.new_event_loop()
        tools = refund_pack.Tools(self.tools, self.path("orders.db"), keyed=os.environ.get("BENCH_IDEMPOTENT") == "1")
        opened = refund_pack.open_deployment(Path(directory), tools, filler)
        self.deployment: Deployment = self.loop.run_until_complete(opened)

    async def begin(self, req):
        # The shared request names no token of the user, and ContextOS refuses a delegation without one.
        delegation = {**req["user"]["delegation"], "token_ref": TOKEN_REF}
        user = {**req["user"], "delegation": delegation}
        body = {**req, "user": user, "mode": "stream", "runtime": {**req["runtime"], "max_cost_cents": 25}}
        return await self.deployment.invoke(body)

    async def agree(self, run_id):
        await refund_pack.approve(self.deployment, run_id)
        await self.deployment.advance(refund_pack.TENANT, run_id)
        return await self.deployment.view(refund_pack.TENANT, run_id)

    @staticmethod
    def record(view):
        return {**view.record, "scores": view.record["scorecard"]} if view.state == "completed" else None

    def start(self, req):
        return self.record(self.loop.run_until_complete(self.begin(req)))

    def approve(self, request_id):
        run_id = self.loop.run_until_complete(refund_pack.run_of(self.deployment, request_id))
        return self.record(self.loop.run_until_complete(self.agree(run_id)))

    def recover(self, request_id):
        run_id = self.loop.run_until_complete(refund_pack.run_of(self.deployment, request_id))
        self.loop.run_until_complete(self.deployment.advance(refund_pack.TENANT, run_id))
        return self.record(self.loop.run_until_complete(self.deployment.view(refund_pack.TENANT, run_id)))

    def run_many(self, reqs, concurrency):
        gate = asyncio.Semaphore(concurrency)

        async def one(req):
            async with gate:
                begun = time.perf_counter()
                view = await self.begin(req)
                if view.waiting:
                    view = await self.agree(view.run_id)
                took = (time.perf_counter() - begun) * 1e3
            check(self.record(view), req)
            return took

        async def every():
            if concurrency == 1:
                return [await one(req) for req in reqs]
            return await asyncio.gather(*map(one, reqs))

        return self.loop.run_until_complete(every())

    def close(self):
        self.deployment.ports.stores.close()


# --- user code end


if __name__ == "__main__":
    main(ContextOS, __file__)
