"""Makes packs from few lines: a declaration of tools, people, denials and approvals expands to a whole Context Pack.

A field that the author leaves out gets a strict default. Each field of the expansion has an origin: written, default or
derived.
"""
