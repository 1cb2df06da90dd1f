"""What random graphs are made of: a table of recipes, by family. `common` says what a recipe is."""

from __future__ import annotations

from . import kernels, layout, order, pointwise, quantised
from .common import RECIPES

__all__ = ["RECIPES", "kernels", "layout", "order", "pointwise", "quantised"]
