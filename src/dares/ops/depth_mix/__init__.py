"""Softmax over depth: the one operation that every routed scheme is made of."""

from dares.ops.depth_mix.naive import depth_mix

__all__ = ["depth_mix"]
