"""Building blocks of adapters: layouts, codecs, parameter names, execution of calls, reading of actual calls.

A *codec* turns columns of a batch into one argument of a call, and back. A *form* is the layout of one tensor, such as
padded or packed. A *role* is what a parameter of a known name holds. A *binding* states the column, the axes or the
value of a parameter. A *slot* is a parameter, a field of a dataclass or a key of a dict.
"""
