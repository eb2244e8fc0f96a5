"""The `Witness` port: signed heads kept where the owner of the store cannot rewrite them."""
