"""Artifacts and records of context selections, under the same row-level security. There is no downgrade."""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Run the statements of the SQL file with this module's name, in the transaction of the migration."""
    statements = Path(__file__).with_suffix(".sql").read_text("utf-8").split(";\n\n")
    for statement in statements:
        op.get_bind().exec_driver_sql(statement)
