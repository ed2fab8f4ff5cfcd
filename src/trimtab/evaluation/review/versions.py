"""Guidelines: what annotators are asked to go by, a text whose versions are named by their hash."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.evaluation.review.store import ReviewStore, review_in, utf8
from trimtab.reading import bytes_of

__all__ = ["Version", "guidelines", "refresh_guidelines", "set_guidelines", "version_of"]

_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the guidelines of a review.

    Args:
        version: the first 12 digits of the text's sha256.
        text: of it.
        since: when it was put in force, seconds since the epoch.
        votes: given under it, undone ones not counted.
    """

    version: str
    text: str
    since: float
    votes: int


def version_of(text: str) -> str:
    """The name of a version: white space at line ends and at the end of the text makes no other one."""
    lines = [line.rstrip() for line in text.splitlines()]
    return hashlib.sha256("\n".join(lines).strip("\n").encode("utf-8", "replace")).hexdigest()[:12]


def set_guidelines(
    store: ReviewStore, review: str | None, text: str, file: str | os.PathLike[str] | None = None
) -> str:
    """Put a text in force for a review; what is shown from now on, and votes on it, carry its version.

    Args:
        store: the reviews.
        review: which; None: the only one.
        text: the guidelines.
        file: where the text is kept, so that `refresh_guidelines` finds its changes.

    Returns:
        The version.

    Raises:
        TrimtabError: no such review, or an empty text.
    """
    if not text.strip():
        raise TrimtabError(ErrorKind.DATA, "the guidelines are empty", "say what a better response is")
    version = version_of(text)
    with store.transaction("the guidelines cannot be recorded") as cursor:
        found = review_in(cursor, store, review)
        cursor.execute("INSERT OR IGNORE INTO guidelines (version, text) VALUES (?, ?)", (version, utf8(text)))
        if version != found.guidelines:
            cursor.execute(
                "INSERT INTO guideline_changes (review, version, since) VALUES (?, ?, ?)",
                (found.id, version, time.time()),
            )
        if file is not None:
            kept = os.path.relpath(file, store.path.resolve().parent)
            cursor.execute("UPDATE reviews SET guidelines_file = ? WHERE id = ?", (utf8(kept), found.id))
    return version


def read_guidelines(path: str | os.PathLike[str]) -> str:
    """The text of a guidelines file.

    Raises:
        TrimtabError: it cannot be read, is larger than 1 MiB, or no UTF-8.
    """
    data = bytes_of(path, _MOST_BYTES)
    try:
        if len(data) > _MOST_BYTES:
            raise TrimtabError(ErrorKind.DATA, f"{path}: {len(data)} bytes of guidelines", "who is to read that?")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TrimtabError(ErrorKind.DATA, f"{path}: is not UTF-8", "Save it as UTF-8.") from None


def refresh_guidelines(store: ReviewStore, review: str | None) -> str | None:
    """Put the text of the review's guidelines file in force, where it has changed.

    Returns:
        The new version; None: it has not changed, or there is no such file (any more).

    Raises:
        TrimtabError: no such review, or a file that cannot be read.
    """
    with store.reading() as cursor:
        found = review_in(cursor, store, review)
    path = Path(store.path).resolve().parent / found.guidelines_file
    if not found.guidelines_file or not path.is_file():
        return None
    text = read_guidelines(path)
    if not text.strip() or version_of(text) == found.guidelines:
        return None
    return set_guidelines(store, found.name, text)


def guidelines(store: ReviewStore, review: str | None) -> list[Version]:
    """The versions of a review's guidelines in the order in which they came into force; the last one is in force.

    Raises:
        TrimtabError: no such review.
    """
    with store.reading() as cursor:
        found = review_in(cursor, store, review)
        rows = cursor.execute(
            "SELECT c.version, g.text, c.since, (SELECT COUNT(*) FROM votes v WHERE v.review = c.review"
            " AND v.guidelines = c.version AND v.undone IS NULL) FROM guideline_changes c"
            " JOIN guidelines g ON g.version = c.version WHERE c.review = ? ORDER BY c.id",
            (found.id,),
        ).fetchall()
    return [Version(*row) for row in rows]
