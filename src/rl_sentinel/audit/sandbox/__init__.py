"""Processes of an audit: workers, their children, limits and time-outs."""
