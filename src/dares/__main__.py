"""`python -m dares` is the `dares` command."""

from dares.cli import main

main()
