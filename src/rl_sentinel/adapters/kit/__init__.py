"""Building blocks of adapters: layouts, codecs, parameter names, execution of calls, reading of live calls."""
