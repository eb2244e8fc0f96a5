"""The first schema: journal, heads, documents, runs, graph and slots, under row-level security; no downgrade."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Run the statements of the SQL file with this module's name, in the transaction of the migration."""
    statements = Path(__file__).with_suffix(".sql").read_text("utf-8").split(";\n\n")
    for statement in statements:
        op.get_bind().exec_driver_sql(statement)
