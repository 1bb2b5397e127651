"""The commands of the command line, one group a file: parse, call, print."""
