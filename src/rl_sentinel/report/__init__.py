"""Reports: verdicts in, one format out."""
