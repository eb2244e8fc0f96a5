"""The refund as a graph for `langgraph dev`: the nodes of `peer_langgraph.py` in the peers' folder, without its saver,
because the server brings one. Loaded by the server that `http_api.py` starts.
"""

import os
import sys

sys.path.insert(0, os.environ["BENCH_PEERS"])

import peer_langgraph

graph = peer_langgraph.LangGraph(os.environ["BENCH_FOLDER"], 0).app
graph.checkpointer = None
