"""What a request and its context slots bring into a run: files (`attachments`) and selected artifacts (`slot_steps`).
`request_conflicts` says how a request differs from the one that its id was used for first.

Each is checked and recorded before anything of the run uses it.
"""
