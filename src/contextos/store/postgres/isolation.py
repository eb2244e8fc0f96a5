"""Catalogue queries that find changed protections: what isolates tenants and keeps the journal append-only.

An owner or superuser can change these after the migration: row-level security, policies, owners, triggers and surplus
rights. Such a change could show one tenant's rows to another, hide due runs, or let the application's role change rows
that it can only append. The rights that a run needs are checked in `schema`.
"""

from __future__ import annotations

from typing import Final

# A role bypasses the policies if it can become a role that ignores them, or an owner, who can remove them.
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
    "edges",
    "extensions",
    "graph_commits",
    "heads",
    "journal",
    "nodes",
    "representations",
    "run_context_selections",
    "runs",
    "semantic_assertions",
)
"""The tables with tenants' rows, which must exist. Additional tables of the schema are checked too."""
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
        "semantic_assertions",
    ),
    "stands": ("context_selection_acts", "heads", "nodes", "representations", "run_context_selections"),
    "ends_only": ("artifacts", "edges", "semantic_assertions"),
    "erases_only": ("journal",),
    "coherent_only": ("run_context_selections",),
}
"""The triggers that keep rows append-only: name, and the tables that must have it."""
_WANTED: Final = ", ".join(f"('{trigger}', '{table}')" for trigger, tables in TRIGGERS.items() for table in tables)
CHANGED_PROTECTIONS: Final = f"""
WITH held AS (
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
    OR (policy = 'sweep' AND name = 'runs' AND cmd = 'SELECT' AND qual = 'wake_at_us<>0'
        AND roles = ARRAY[pg_get_userbyid((SELECT owner FROM swept))]))
)
SELECT string_agg(what, ', ' ORDER BY what) FROM (
  SELECT format('table `%s`', name) FROM (
    SELECT unnest(ARRAY{list(TABLES)}) EXCEPT SELECT name FROM held) AS gone (name)
  UNION ALL SELECT format('row-level security of `%s`', name) FROM held WHERE NOT forced
  UNION ALL SELECT format('policy `%s` of `%s`', policy, name) FROM (
    (SELECT name, 'tenant' AS policy FROM held UNION SELECT 'runs', 'sweep' UNION SELECT name, policy FROM policy)
    EXCEPT SELECT name, policy FROM sound) AS unsound
  UNION ALL SELECT format('owner of `%s`', name) FROM held WHERE owner <> (SELECT owner FROM swept)
  UNION ALL SELECT format('function `%s`', made.proname) FROM pg_proc AS made
    JOIN pg_namespace AS space ON space.oid = made.pronamespace AND space.nspname = 'contextos'
    WHERE made.proowner <> (SELECT owner FROM swept) OR made.prosecdef <> (made.proname = 'due')
      OR (made.prosecdef AND NOT coalesce(made.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false))
  UNION ALL SELECT format('trigger `%s` of `%s`', wanted, name) FROM (VALUES {_WANTED}) AS kept (wanted, name)
    JOIN held USING (name)
    WHERE NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = held.id AND tgname = wanted AND tgenabled IN ('O', 'A'))
  UNION ALL SELECT format('right to %s `%s`', surplus, name) FROM held
    CROSS JOIN unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS surplus
    WHERE has_table_privilege(id, surplus)
) AS changed (what)
"""  # noqa: S608
