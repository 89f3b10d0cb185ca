"""Fetch the code of a target from the package index, a folder, or a git revision."""
