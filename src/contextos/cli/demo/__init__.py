"""The demo: a workspace from the shipped example, and two refunds from request to replay."""
