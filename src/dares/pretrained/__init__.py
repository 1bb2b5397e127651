"""Checkpoints on disk: found, read, turned into routed ones, and made ready to share."""
