"""A SuperNode that asks more often: ``python -m freshband.flower._supernode PAUSE ...``.

All other arguments are those of ``flower-supernode``.
"""

from __future__ import annotations

import sys

from flwr.supernode.cli import flower_supernode

from freshband.flower._haste import hasten

if __name__ == "__main__":
    hasten(float(sys.argv.pop(1)))
    flower_supernode()
