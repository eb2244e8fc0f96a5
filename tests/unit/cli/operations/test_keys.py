"""`key list` shows every key with its times, and `key rotate` says what took the place of what."""

from __future__ import annotations


def test_a_rotation_shows_in_the_list(shop) -> None:
    new = shop.say("key", "rotate", "--purpose", "export", *shop.by, "--json").json
    lines = [line for line in shop.say("key", "list").out.splitlines() if line.startswith("export")]
    assert [line.split()[1] for line in lines] == [new["kid"], new["old_kid"]]
    assert (lines[0].split()[3], lines[1].split()[3][:2]) == ("-", "20")
    said = shop.say("key", "rotate", "--purpose", "export", *shop.by)
    assert f"{new['kid']} is retired at 20" in said.out
