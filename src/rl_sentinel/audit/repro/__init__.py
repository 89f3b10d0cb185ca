"""What shows a finding again: scripts, stored cases."""
