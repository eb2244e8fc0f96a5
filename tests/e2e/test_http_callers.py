"""A person by a development token, a person by the access token of an issuer, and a workload by its JWT-SVID send a
request and run a session over HTTP.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.envelopes.identity import KnownDelegation
from contextos.port_settings import OidcDirectorySetting
from contextos.port_settings.workloads import TrustDomainSetting, WorkloadsSetting
from contextos.settings import Settings
from tests.http_face import LEAD, REQUESTER, HttpFace, http_face
from tests.issuer import AUDIENCE, ISSUER, jwks, token
from tests.spire import AUDIENCE as SVID_AUDIENCE
from tests.spire import DOMAIN, WORKLOAD, bundle, svid
from tests.unit.adapters.test_signed_directory import KEEPER, write
from tests.world import TENANT, public_key
