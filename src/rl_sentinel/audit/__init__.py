"""Audit: targets and their source, the plan, the worker process, known findings."""
