"""What transformers, and libraries that it brings in, say while they work."""

from __future__ import annotations

import logging as standard
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging

__all__ = ["without_bars", "without_warnings"]


def _to_stderr(record: standard.LogRecord) -> bool:
    sys.stderr.write(f"[deepspeed] {record.getMessage()}\n")
    return False


# Where DeepSpeed is installed, transformers imports it to save a model, and its logger writes to stdout: that is for
# data alone.
standard.getLogger("DeepSpeed").addFilter(_to_stderr)


@contextmanager
def without_bars() -> Iterator[None]:
    """transformers' own progress bars off: loading takes seconds, and narration is Trimtab's to make."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def without_warnings() -> Iterator[None]:
    """transformers' warnings off, such as the list of weights that a model cut short has no place for."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
