"""The bytes that depth mixing moves, counted by hand: a file for each backend's way to do it.

An operation reads its inputs once and writes its outputs once. What the standard residual does too
(the sum of the stream and its gradient) is left out, and so is what has no axis of width D a token:
scores and weights, and the keys, which all tokens share.
"""
