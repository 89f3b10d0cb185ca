"""Audit a target: fetch its source, run laws in worker processes, compare with known findings."""
