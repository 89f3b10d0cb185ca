"""Reproduce a finding: write a stand-alone script, or replay a stored case."""
