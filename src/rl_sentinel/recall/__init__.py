"""Recall on known bugs: whether an audit reports a bug before its fix, and does not report it after the fix."""
