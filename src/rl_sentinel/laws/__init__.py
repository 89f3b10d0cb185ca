"""Laws: one module per law, named for the fault; the module's docstring is the law's page."""

import sys

from rl_sentinel.core.law import Law, validate_claims
from rl_sentinel.core.modules import defined

#: Code -> law, in the order of codes, for each module of this package that defines ``LAW``.
LAWS: dict[str, Law] = {
    law.code: law for law in sorted(defined(sys.modules[__name__], "LAW").values(), key=lambda law: str(law.code))
}

validate_claims(LAWS.values())
