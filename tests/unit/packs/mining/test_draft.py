"""A mined pack as a file: it reads back as what was mined, and its comments stay comments."""

from __future__ import annotations

from contextos.contracts.encoding.codec import parse
from contextos.packs.declaration import PackDeclaration
from contextos.packs.mining.draft import MAX_COMMENT_CHARS, mined_yaml
from contextos.packs.mining.miner import MinedPack
from contextos.packs.reading import read_declaration

DECLARED = parse(
    PackDeclaration,
    {
        "name": "mini.mined",
        "version": "0.1.0",
        "tenant": "tenant_acme",
        "who": ["support"],
        "budget": {"max_tool_calls": 3},
        "deny": [{"when": "not missing(args.force)", "tools": ["shop.tag"]}],
        "auto_approve": [{"tools": ["shop.tag"], "bounds": {"tag": {"enum": ["a: b", "*x", "\u2028"]}}}],
        "permissions": {"shop.tag": {"arg_constraints": {"tag": {"pattern": "a\\x{a}# b"}}}},
    },
)


def test_a_file_reads_back_as_what_was_mined() -> None:
    notes = {("deny", "0"): ["never given"], ("permissions", "shop.tag", "tag"): ["1 in run_a/c1"]}
    text = mined_yaml(MinedPack(DECLARED, notes, {"no tool answered it": 2}, {}))
    assert read_declaration(text.encode()) == DECLARED
    lines = text.splitlines()
    assert "# 2 calls are left out: no tool answered it" in lines
    assert lines[lines.index("deny:") + 1] == "  # never given"
    assert "  # tag: 1 in run_a/c1" in lines


def test_a_comment_cannot_end_itself() -> None:
    evil = "x\nwho: [everyone]\r\nmode: observe\u2028mode: observe\x85\u202e" + "y" * 1_000
    notes = {("permissions", "shop.tag"): [evil], ("deny", "0"): [evil], ("budget",): [evil]}
    text = mined_yaml(MinedPack(DECLARED, notes, {evil: 1}, {"shop.tag": [evil]}))
    assert read_declaration(text.encode()) == DECLARED
    comments = [line for line in text.split("\n") if "everyone" in line]
    assert len(comments) == 4
    assert all(line.lstrip().startswith("# ") and len(line) < MAX_COMMENT_CHARS + 10 for line in comments)
