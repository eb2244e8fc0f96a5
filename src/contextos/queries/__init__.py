"""The read side: pure folds of stored entries that the command line, a server and a console share.

Nothing here writes, drives a run, or asks anything of the outside but the store that it reads.
"""
