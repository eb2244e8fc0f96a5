"""Tools of a deployment agent over a small cluster (`cluster.json`)."""

import json
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

import contextos

CLUSTER = Path(__file__).with_name("cluster.json")
Service = Annotated[str, Field(pattern=r"^[a-z-]{1,40}$")]
Environment = Literal["staging", "prod"]


class Build(BaseModel):
    """The newest build of a service, and the build before."""

    newest: str
    green: bool
    before: str


class Impact(BaseModel):
    """Who notices a change of a service, and whether changes are frozen now."""

    customers: int
    frozen: bool


def _cluster():
    return json.loads(CLUSTER.read_text("utf-8"))


def _apply(key, change):
    """Change the cluster once for each key, whatever happens in between."""
    cluster = _cluster()
    if key not in cluster["done"]:
        cluster["done"][key] = change(cluster["services"])
        CLUSTER.with_suffix(".new").write_text(json.dumps(cluster, indent=1), "utf-8")
        os.replace(CLUSTER.with_suffix(".new"), CLUSTER)
    return cluster["done"][key]


@contextos.read(integrity="trusted", produces="ci")
def ci_status(service: Service) -> Build:
    """The state of a service in continuous integration."""
    return Build(**_cluster()["services"][service]["ci"])


@contextos.read(integrity="trusted", produces="impact")
def impact(service: Service, env: Environment) -> Impact:
    """How many customers a change of a service reaches, and whether it is in a freeze window."""
    return Impact(**_cluster()["services"][service]["impact"][env])


@contextos.write(risk="reversible", idempotency="keyed")
def scale(service: Service, env: Environment, replicas: Annotated[int, Field(ge=1, le=20)], key: contextos.Key) -> int:
    """Set the number of replicas of a service."""
    return _apply(key, lambda services: services[service]["replicas"].update({env: replicas}) or replicas)


@contextos.write(risk="irreversible", idempotency="keyed")
def rollback(service: Service, env: Environment, key: contextos.Key) -> str:
    """Put the build before the newest one back into service."""
    return _apply(
        key, lambda services: services[service]["live"].update({env: services[service]["ci"]["before"]}) or env
    )


TOOLS = contextos.toolset("deploy", [ci_status, impact, scale, rollback])
