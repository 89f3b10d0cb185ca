"""Reports: one module per format, which turns verdicts and findings into text or files."""
