"""Writes the generated pages of the docs from the code: `python -m docsgen.reference`. Not in the wheel."""
