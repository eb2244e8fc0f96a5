"""Where notices of runs are sent: as signed webhooks (`webhook`) and as mails (`mail`).

Each sends one notice once. When it is sent, how often, and in which order is up to `service.outbox`.
"""
