"""What `dares bench` measures: always ratios, taken in one process with interleaved repeats."""
