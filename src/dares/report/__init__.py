"""What `dares inspect` writes: routing.json, figures, and one page that holds everything."""
