"""The batch size from which each kernel runs, and the size of its blocks.

Sizes are read at each call, so that tests and audits can lower them and enter a kernel with a small batch.
"""

#: Tokens from which a loss runs by its kernel.
LOSS = 64

#: Logits from which log-probs are computed in blocks: no second ``[.., V]`` tensor is needed.
LOGITS = 2**14

#: Positions of a row from which discounted sums are doubled; below, a loop over positions is faster.
SUMS = 9

#: Tokens of one block of a loss, and of a function of rows.
BLOCK, ROWS = 131_072, 131_072

#: Logits of one block on a CPU, where it should fit the cache, and on other devices.
LOGITS_CPU, LOGITS_DEVICE = 2**18, 2**27

#: Logits from which log-probs are computed from hidden states in blocks: below, all logits fit in a few megabytes.
PROJECTED = 2**20

#: Rows of one block of logits that are computed from hidden states: large enough that reading the weight is cheap.
PROJECTED_ROWS = 1024
