"""The tools of the deploy example as the skills of an A2A agent: `cluster_agent.py FOLDER [SECONDS]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from listening import load_module
from shop_agent import Skill, serve_agent


def main(folder: str, work_s: str = "0") -> None:
    cluster: Any = load_module(Path(folder) / "deploy.py")
    skills: dict[str, Skill] = {
        "ci_status": lambda args, _key: cluster.ci_status(args["service"]).model_dump(),
        "impact": lambda args, _key: cluster.impact(args["service"], args["env"]).model_dump(),
        "scale": lambda args, key: {"result": cluster.scale(args["service"], args["env"], int(args["replicas"]), key)},
        "rollback": lambda args, key: {"result": cluster.rollback(args["service"], args["env"], key)},
    }
    serve_agent("cluster", skills, frozenset({"scale", "rollback"}), work_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
