"""The table of operations: each thing that a person or a program can ask of a deployment, once.

`operation` is the form of an entry, and each other module has the entries of a group with the models of their inputs
and answers. `table.OPERATION_TABLE` has all of them. The routes of the HTTP API with their statement steps, the OpenAPI
document with what is made from it, `contextos ops` and `contextos ask` are loops over it. Older routes are
not in it yet.

Does not own: who asks (the faces), or what is done (`deployment`, and the other modules of `service`).
"""
