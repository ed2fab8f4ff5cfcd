"""What a review store's file looks like."""

from __future__ import annotations

from trimtab.runs.database import Format

__all__ = ["FORMAT"]

_FIRST = (
    """CREATE TABLE reviews (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created REAL NOT NULL, source TEXT NOT NULL,
    system_1 TEXT NOT NULL, system_2 TEXT NOT NULL, identical INTEGER NOT NULL, votes_per_item INTEGER NOT NULL,
    repeats REAL NOT NULL, gold REAL NOT NULL, aspects TEXT NOT NULL, lease_s REAL NOT NULL, seed INTEGER NOT NULL,
    guidelines_file TEXT NOT NULL DEFAULT '')""",
    # place: a seeded permutation, in which items of equal need are handed out
    """CREATE TABLE items (
    id INTEGER PRIMARY KEY, review INTEGER NOT NULL REFERENCES reviews, key TEXT NOT NULL, pair_id TEXT NOT NULL,
    prompt_id TEXT NOT NULL, messages TEXT NOT NULL, tags TEXT NOT NULL, response_1 TEXT NOT NULL,
    response_2 TEXT NOT NULL, system_1 TEXT NOT NULL, system_2 TEXT NOT NULL, answer INTEGER, extra TEXT NOT NULL,
    place INTEGER NOT NULL, UNIQUE (review, key))""",
    "CREATE TABLE annotators (name TEXT PRIMARY KEY, groups TEXT NOT NULL, since REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE guidelines (version TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE guideline_changes (
    id INTEGER PRIMARY KEY, review INTEGER NOT NULL REFERENCES reviews, version TEXT NOT NULL, since REAL NOT NULL)""",
    # a showing: sample 0 is the annotator's vote, sample 1 the repeat with the sides swapped;
    # voted: 0 not yet, 1 voted, 2 skipped
    """CREATE TABLE showings (
    ticket TEXT PRIMARY KEY, review INTEGER NOT NULL REFERENCES reviews, item INTEGER NOT NULL REFERENCES items,
    annotator TEXT NOT NULL, sample INTEGER NOT NULL, swapped INTEGER NOT NULL, guidelines TEXT NOT NULL,
    shown REAL NOT NULL, expires REAL NOT NULL, voted INTEGER NOT NULL DEFAULT 0, UNIQUE (item, annotator, sample))""",
    "CREATE INDEX showings_of ON showings (review, annotator, voted)",
    # undone votes stay, with the time at which they were undone
    """CREATE TABLE votes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, ticket TEXT NOT NULL REFERENCES showings, review INTEGER NOT NULL,
    annotator TEXT NOT NULL, groups TEXT NOT NULL, choice TEXT NOT NULL, aspects TEXT NOT NULL, reason TEXT NOT NULL,
    seconds REAL NOT NULL, guidelines TEXT NOT NULL, recorded REAL NOT NULL, undone REAL)""",
    "CREATE INDEX votes_of ON votes (review, annotator)",
    "CREATE UNIQUE INDEX one_vote ON votes (ticket) WHERE undone IS NULL",
)

FORMAT = Format(
    "review store", "reviews", (_FIRST,), "a project's review store is reviews.sqlite, written by trimtab review"
)
"""The versions of the file."""
