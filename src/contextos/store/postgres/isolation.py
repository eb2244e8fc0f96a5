"""Finds changed protections in PostgreSQL's catalogue: those that isolate tenants and keep the journal append-only.

An owner or superuser can change row-level security, policies, owners, triggers, the text of functions, rules, views and
rights after the migration. Such a change could show one tenant's rows to another, hide due runs, or let the
application's role change rows that it can only append. The rights that a run needs are checked in `schema`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

# A role bypasses the policies if it can become a role that ignores them, or an owner of a table, who can remove them.
BYPASSES_POLICIES: Final = (
    "SELECT EXISTS ("
    "  SELECT FROM pg_roles AS role"
    "  WHERE (role.rolsuper OR role.rolbypassrls) AND pg_has_role(session_user, role.oid, 'MEMBER')) OR EXISTS ("
    "  SELECT FROM pg_class AS relation JOIN pg_namespace AS space ON space.oid = relation.relnamespace"
    "  WHERE space.nspname = 'contextos' AND (pg_has_role(session_user, relation.relowner, 'MEMBER')"
    "   OR pg_has_role(session_user, space.nspowner, 'MEMBER')))"
)
# Compared without spaces, parentheses and casts, which differ between versions of PostgreSQL.
TENANT_CONDITION: Final = "tenant=NULLIFcurrent_setting'contextos.tenant',true,''"
TABLES: Final = (
    "artifacts",
    "context_selection_acts",
    "documents",
    "drive_rates",
    "edges",
    "extensions",
    "graph_commits",
    "heads",
    "journal",
    "nodes",
    "representations",
    "run_context_selections",
    "run_terms",
    "runs",
    "segments",
    "semantic_assertions",
    "workers",
)
"""The tables with tenants' rows, which must exist. Additional tables of the schema are checked too."""
MIGRATION_FILES: Final = Path(__file__).with_name("migrations") / "versions"
_FUNCTION: Final = re.compile(r"^CREATE FUNCTION contextos\.(\w+)\(.*?\$\$(.*?)\$\$", re.DOTALL | re.MULTILINE)

TRIGGERS: Final = {
    "keeps": (
        "artifacts",
        "context_selection_acts",
        "edges",
        "heads",
        "journal",
        "nodes",
        "representations",
        "run_context_selections",
        "segments",
        "semantic_assertions",
    ),
    "stands": ("context_selection_acts", "heads", "journal", "nodes", "representations", "run_context_selections"),
    "begins_now": ("edges",),
    "continues": ("segments",),
    "ends_only": ("artifacts", "edges", "semantic_assertions"),
    "erases_only": ("segments",),
    "steps_only": ("documents", "graph_commits", "runs"),
    "coherent_only": ("run_context_selections",),
    "of_run_only": ("context_selection_acts",),
    "of_act_only": ("run_context_selections",),
}
"""The triggers that keep rows append-only: the tables that must have each trigger, by its name."""
_FUNCTIONS_OF_TRIGGERS: Final = {
    ("continues", "segments"): "segment_continues",
    ("erases_only", "segments"): "erases_only",
    ("steps_only", "documents"): "next_version_only",
    ("steps_only", "graph_commits"): "next_commit_only",
    ("steps_only", "runs"): "keeps_number",
    ("begins_now", "edges"): "edge_begins_now",
    ("ends_only", "artifacts"): "artifact_ends_only",
    ("ends_only", "edges"): "edge_ends_only",
    ("ends_only", "semantic_assertions"): "assertion_ends_only",
    ("coherent_only", "run_context_selections"): "coherent_only",
    ("of_run_only", "context_selection_acts"): "act_of_run_only",
    ("of_act_only", "run_context_selections"): "ref_of_act_only",
}
"""The functions of the triggers whose function is not `append_only`."""
_TRIGGER_TYPES: Final = {
    "keeps": 2 | 8 | 32,
    "stands": 2 | 16,
    "begins_now": 1 | 2 | 4,
    "continues": 1 | 2 | 4,
    "ends_only": 1 | 2 | 16,
    "erases_only": 1 | 2 | 16,
    "steps_only": 1 | 2 | 16,
    "coherent_only": 1 | 2 | 4,
    "of_run_only": 1 | 2 | 4,
    "of_act_only": 1 | 2 | 4,
}
"""`pg_trigger.tgtype`: for each row 1, before 2, insert 4, delete 8, update 16, truncate 32."""
_TRIGGER_ROWS: Final = ", ".join(
    f"('{trigger}', '{table}', 'contextos.{_FUNCTIONS_OF_TRIGGERS.get((trigger, table), 'append_only')}',"
    f" {_TRIGGER_TYPES[trigger]})"
    for trigger, tables in TRIGGERS.items()
    for table in tables
)
CHANGEABLE_COLUMNS: Final = {
    "artifacts": ("deleted_at_us",),
    "documents": ("version", "body"),
    "edges": ("valid_to", "withdrawn_ref"),
    "extensions": ("satisfies",),
    "graph_commits": ("head",),
    "runs": ("wake_at_us", "number", "waiting"),
    "semantic_assertions": ("eligibility", "archived_at_us"),
}
"""The columns that the application's role can update. Triggers limit each update further."""
_CHANGEABLE: Final = ", ".join(f"('{name}', '{column}')" for name, cs in CHANGEABLE_COLUMNS.items() for column in cs)
CHANGED_PROTECTIONS: Final = f"""
WITH RECURSIVE held AS (
  SELECT oid AS id, relname::text AS name, relrowsecurity AND relforcerowsecurity AS forced, relowner AS owner
  FROM pg_class WHERE relnamespace = 'contextos'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'schema_version'
), swept AS (
  SELECT owner FROM held WHERE name = 'runs'
), policy AS (
  SELECT tablename::text AS name, policyname::text AS policy, permissive = 'PERMISSIVE' AS opens, cmd, roles,
    replace(translate(qual, ' ()', ''), '::text', '') AS qual,
    replace(translate(with_check, ' ()', ''), '::text', '') AS checked
  FROM pg_policies WHERE schemaname = 'contextos'
), sound AS (
  SELECT name, policy FROM policy WHERE opens AND (
    (policy = 'tenant' AND cmd = 'ALL' AND roles = ARRAY['public'::name] AND qual = $1 AND checked = $1)
    OR (policy = 'sweep' AND name IN ('drive_rates', 'runs', 'workers') AND cmd = 'ALL' AND qual = 'true'
        AND checked = 'true' AND roles = ARRAY[pg_get_userbyid((SELECT owner FROM swept))]))
), wanted (trigger, name, function, type) AS (
  VALUES {_TRIGGER_ROWS}
), view AS (
  -- Views on the tables, and views on these: a view reads with the rights of its owner.
  SELECT id FROM held
  UNION SELECT rule.ev_class FROM view
    JOIN pg_depend AS link ON link.refobjid = view.id AND link.refclassid = 'pg_class'::regclass
      AND link.classid = 'pg_rewrite'::regclass
    JOIN pg_rewrite AS rule ON rule.oid = link.objid
)
SELECT string_agg(what, ', ' ORDER BY what) FROM (
  SELECT format('table `%s`', name) FROM (
    SELECT unnest(ARRAY{list(TABLES)}) EXCEPT SELECT name FROM held) AS gone (name)
  UNION ALL SELECT format('row-level security of `%s`', name) FROM held WHERE NOT forced
  UNION ALL SELECT format('policy `%s` of `%s`', policy, name) FROM (
    (SELECT name, 'tenant' AS policy FROM held WHERE name <> 'workers'
     UNION SELECT unnest(ARRAY['drive_rates', 'runs', 'workers']), 'sweep' UNION SELECT name, policy FROM policy)
    EXCEPT SELECT name, policy FROM sound) AS unsound
  UNION ALL SELECT format('owner of `%s`', name) FROM held WHERE owner <> (SELECT owner FROM swept)
  UNION ALL SELECT format('function `%s`', made.proname) FROM pg_proc AS made
    JOIN pg_namespace AS space ON space.oid = made.pronamespace AND space.nspname = 'contextos'
    WHERE made.proowner <> (SELECT owner FROM swept)
      OR made.prosecdef <> (made.proname IN ('claim_runs', 'due', 'erase_entry'))
      OR NOT EXISTS (SELECT FROM unnest($2::text[], $3::text[]) AS ours (name, body)
                     WHERE ours.name = made.proname AND ours.body = made.prosrc)
      OR (made.prosecdef AND NOT coalesce(made.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false))
  UNION ALL SELECT format('trigger `%s` of `%s`', trigger, name) FROM (
    (SELECT trigger, name FROM wanted UNION SELECT tgname::text, name FROM pg_trigger JOIN held ON tgrelid = held.id
     WHERE NOT tgisinternal)
    EXCEPT SELECT trigger, name FROM wanted JOIN held USING (name) JOIN pg_trigger ON tgrelid = held.id
      AND tgname = trigger AND tgenabled IN ('O', 'A') AND tgqual IS NULL AND tgattr = ''::int2vector
      AND tgtype = type AND tgfoid = function::regproc) AS unkept
  UNION ALL SELECT format('rule `%s` of `%s`', rulename, name) FROM pg_rewrite JOIN held ON ev_class = held.id
  UNION ALL SELECT format('right on the view `%s`', relname) FROM pg_class
    WHERE relkind IN ('v', 'm') AND (oid IN (SELECT id FROM view) OR relnamespace = 'contextos'::regnamespace)
      AND (has_table_privilege(oid, 'DELETE, TRIGGER') OR has_any_column_privilege(oid, 'SELECT, INSERT, UPDATE'))
  UNION ALL SELECT format('right to %s `%s`', surplus, name) FROM held
    CROSS JOIN unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS surplus
    WHERE has_table_privilege(id, surplus) AND (name, surplus) <> ('run_terms', 'DELETE')
  UNION ALL SELECT format('right to UPDATE `%s` of `%s`', attname, name) FROM held
    JOIN pg_attribute ON attrelid = id AND attnum > 0 AND NOT attisdropped
    WHERE NOT has_table_privilege(id, 'UPDATE') AND has_column_privilege(id, attnum, 'UPDATE')
      AND (name, attname::text) NOT IN (VALUES {_CHANGEABLE})
) AS changed (what)
"""  # noqa: S608


@cache
def function_bodies() -> tuple[list[str], list[str]]:
    """Return the names of the schema's functions, and their texts as the migrations make them."""
    scripts = sorted(MIGRATION_FILES.glob("*.sql"))
    functions = [function for script in scripts for function in _FUNCTION.findall(script.read_text("utf-8"))]
    return [name for name, _ in functions], [body for _, body in functions]
