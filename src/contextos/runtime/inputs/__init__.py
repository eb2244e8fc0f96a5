"""What a request and its context slots bring into a run: files (`attachments`) and selected artifacts (`slot_steps`).

Each is checked and recorded before anything of the run uses it.
"""
