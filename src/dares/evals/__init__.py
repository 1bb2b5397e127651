"""How good a model is, and whether it is better than another: perplexity, tasks, comparison."""
