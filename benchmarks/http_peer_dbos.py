"""DBOS behind FastAPI, as a process: the refund of `peer_dbos.py` in the peers' folder. Run by `http_api.py`."""

import json
import os
import socket
import sys

sys.path.insert(0, os.environ["BENCH_PEERS"])

import peer_dbos
import uvicorn
from fastapi import FastAPI


def main() -> None:
    peer, api = peer_dbos.Dbos(sys.argv[1], 0), FastAPI()

    @api.post("/refunds", status_code=201)
    def refund(body: dict) -> dict:
        return peer.start(body)

    # As in `contextos.server.serving`: without the protocol asyncio delays the end of each answer.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    print(json.dumps({"port": bound.getsockname()[1]}), flush=True)
    uvicorn.Server(uvicorn.Config(api, log_level="error", access_log=False)).run(sockets=[bound])


if __name__ == "__main__":
    main()
