"""What the benchmarks share: servers that are started and ended, load over HTTP, and tables of medians and ratios."""
