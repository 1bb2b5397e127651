"""Many runs, one table: schemes compared over several seeds, with intervals."""
