"""What adapters are made of: layouts, codecs, parameter names, execution and observation of calls."""
