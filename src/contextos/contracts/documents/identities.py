"""Documents about people who are signed in: the users and delegations in their verified tokens, their login sessions,
the passkeys that they registered, and the questions that flows ask them, all sealed by the runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.documents.collection import stored


@dataclass(frozen=True, slots=True)
class SealedIdentity:
    """A DSSE envelope over a user, a delegation, login sessions, passkeys or questions, with its tenant and its key."""

    envelope: dict[str, Any]


SIGNED_IN: Final = stored("signed_in", SealedIdentity)
"""By `user/<user id>` and `delegation/<token reference>`."""

BROWSER_SESSIONS: Final = stored("browser_sessions", SealedIdentity)
"""By a digest of the user's id: all their login sessions."""

PASSKEY_REGISTRATIONS: Final = stored("passkey_registrations", SealedIdentity)
"""By a digest of the approver's id: the challenge of a registration that began, and the passkeys that they registered.
"""

FLOW_QUESTIONS: Final = stored("flow_questions", SealedIdentity)
"""By a digest of the user's id: the selections that paused flows ask of them, and their answers."""
