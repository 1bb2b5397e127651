"""Training: recipes, what they cost, and the loop that runs them."""
