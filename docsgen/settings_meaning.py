"""What the stand-ins and the variables of the environment are for, for the generated page of the settings."""

from __future__ import annotations

from typing import Final

ENVIRONMENT: Final = {
    "CONTEXTOS_WORKSPACE": "the workspace's directory, if `--workspace` is not given",
    "CONTEXTOS_MIGRATE_URL": "the PostgreSQL database that `contextos store migrate` works on, if `--url` is not given",
    "CONTEXTOS_PASSPHRASE_FILE": "the file with the passphrase of an encrypted `--key`; else the terminal is asked",
    "CONTEXTOS_DEBUG": "write the log to stderr; of an exception it holds the class and the frames, never the text",
    "NO_COLOR": "print without colour, even on a terminal",
}

UNSAFE_MEANING: Final = {
    "unsafe_local_directory": "identities come from a file that nobody signed",
    "unsafe_local_keys": "private keys are plain files of this machine, or all made from one seed",
    "unsafe_local_approvals": "an approval can be answered without the approver's key",
    "unsafe_local_operators": "an operator is only named (`--by` without `--key`); the act on record says so",
    "unsafe_scripted_models": "a file answers in place of models",
    "unsafe_unsigned_packs": "packs without a signature are loaded",
}
