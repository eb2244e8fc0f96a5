"""The read side: functions of stored entries that the command line, a server and a console share.

Nothing here writes, drives a run, or calls an external system other than the store that it reads.
"""
