"""Implements the `Witness` port: signed heads are stored where the owner of the database cannot change them."""
