"""The demo: a workspace made from the shipped example, and two refunds from request to replay."""
