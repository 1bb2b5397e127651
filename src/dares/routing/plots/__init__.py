"""One figure a file: plain data in, a matplotlib Figure out, no global state."""
