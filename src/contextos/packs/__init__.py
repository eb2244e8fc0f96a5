"""Packs from few lines: a declaration that names tools, people, denials and approvals expands to a whole Context Pack.

What the author leaves out gets a strict default. Each field of the expansion has an origin: written, default or
derived.
"""
