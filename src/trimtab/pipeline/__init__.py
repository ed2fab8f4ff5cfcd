"""The stages of a project in order: what each reads and writes, what is up to date, where to resume."""
