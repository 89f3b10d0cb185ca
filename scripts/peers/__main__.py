"""Run the published tests of other frameworks against our functions.

python scripts/peers --checkout trl=PATH --checkout skyrl=PATH#REVISION

verl's come from its source distribution where no checkout is given. Exit 0 where every test is as the tables in
``reviewed`` say, 1 where one is not, 2 where they could not be run.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from peers.page import NAMES, UnexpectedError, lines
from rl_sentinel.core.errors import SentinelError


def main() -> int:
    """Print the page."""
    parser = argparse.ArgumentParser(prog="peers", description=__doc__)
    parser.add_argument("--checkout", action="append", default=[], metavar="NAME=PATH[#REVISION]")
    parser.add_argument("--only", choices=NAMES, help="this framework alone")
    asked = parser.parse_args()
    given = dict(each.partition("=")[::2] for each in asked.checkout)
    if strange := sorted(set(given) - set(NAMES)):
        sys.stderr.write(f"checkout is of {strange[0]!r}, expected one of {', '.join(NAMES)}\n")
        return 2
    try:
        for line in lines(given, (asked.only,) if asked.only else NAMES):
            sys.stdout.write(f"{line}\n")
    except UnexpectedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except SentinelError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
