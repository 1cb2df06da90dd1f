"""Every model runs twice: with the adapter's own Target, and with that of a GPU, which has other kernels."""

from __future__ import annotations

from tests import targets

WAYS = (targets.OWN, targets.Way("gpu", "pair"))


way = targets.each(*WAYS)
