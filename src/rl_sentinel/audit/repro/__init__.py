"""Ways to reproduce a finding: a stand-alone script, and a stored case that is replayed."""
