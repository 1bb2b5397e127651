"""Okabe and Ito's colours, which differ for every kind of eye."""

from __future__ import annotations

BLACK = "#000000"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
