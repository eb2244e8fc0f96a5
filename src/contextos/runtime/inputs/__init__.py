"""What a request and its context slots bring into a run: files (`attachments`) and selected artifacts (`slot_steps`).
`request_conflicts` says how a request differs from an earlier one with the same id.

Each input is checked and recorded before anything of the run uses it.
"""
