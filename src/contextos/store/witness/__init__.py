"""The `Witness` port: signed heads stored where the owner of the database cannot change them."""
