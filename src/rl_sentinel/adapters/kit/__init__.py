"""Building blocks of adapters: layouts, codecs, parameter names, execution and observation of calls."""
