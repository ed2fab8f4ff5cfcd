"""The command line: one module a group of commands, each a thin call of the room that does the work."""
