"""Is a file of preference pairs fit to train on? Findings with counts and ids, and what to do.

`check_file` reads and checks; `check` looks at pairs that are in memory. The kinds of findings that name pairs are what
`trimtab.data.filtering` drops.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trimtab.data.check.balance import composition, label_findings, length_findings, lengths, source_findings
from trimtab.data.check.findings import DataFinding, Level, level_of
from trimtab.data.check.leaks import leak_findings
from trimtab.data.check.material import Material, counted
from trimtab.data.check.quality import flaws, quality_findings
from trimtab.data.check.repeats import repeat_findings
from trimtab.data.check.report import Check
from trimtab.data.check.topics import coverage_findings
from trimtab.data.check.topics import topics as topics_of
from trimtab.data.check.words_model import noise_findings, words_findings, words_model
from trimtab.data.readers import Options, Reading, read
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["Check", "DataFinding", "Level", "check", "check_file"]


def check_file(
    path: str | os.PathLike[str],
    *,
    test: str | os.PathLike[str] | None = None,
    scores: Mapping[str, float] | None = None,
    options: Options | None = None,
    seed: int = 0,
) -> Check:
    """Check a file of pairs in any form that can be read; broken records are a finding.

    Args:
        path: the pairs to train on.
        test: pairs to evaluate on, of which nothing may stand in the training data.
        scores: id -> score of the chosen minus score of the rejected response, by a model that has not seen the label.
        options: how to read.
        seed: of whatever is drawn.

    Raises:
        TrimtabError: a file cannot be read, or it holds no pair.
    """
    reading = read(path, options)
    if not reading.pairs:
        first = f": {reading.broken[0]}" if reading.broken else ""
        raise TrimtabError(ErrorKind.DATA, f"{path}: holds no pairs{first}", "trimtab data check reads pairs only")
    held_out = read(test, options).pairs if test is not None else ()
    return check(reading.pairs, test=held_out, scores=scores, reading=reading, seed=seed)


def check(
    pairs: Sequence[Pair],
    *,
    test: Sequence[Pair] = (),
    scores: Mapping[str, float] | None = None,
    reading: Reading | None = None,
    seed: int = 0,
) -> Check:
    """Check pairs; see `check_file`."""
    material = Material(pairs)
    held_out = Material(test, material.corpus) if test else None
    broken = _broken(reading) if reading else ()
    findings = [*broken, *repeat_findings(material)]
    labels, odd = label_findings(material)
    sizes = lengths(material)
    made_of = composition(material.pairs)
    about = topics_of(material, seed)
    findings += [*odd, *length_findings(material, sizes), *source_findings(material.pairs, made_of)]
    findings += [*coverage_findings(material, about), *quality_findings(material, flaws(material))]
    if held_out is not None:
        findings += leak_findings(material, held_out)
    model = words_model(material, seed)
    findings += words_findings(model) if model else ()
    noise: dict[str, object] = {}
    if scores is not None:
        index, margins = _scored(material, scores)
        noise, wrong = noise_findings(material, index, margins, "the scores handed in")
        findings += wrong
    elif model is not None:
        noise, wrong = noise_findings(material, model.index, model.margins, "a bag of words")
        findings += wrong
    return Check(
        path=str(reading.path) if reading else "pairs",
        form=str(reading.form) if reading else "pairs",
        records=reading.records if reading else len(pairs),
        pairs=len(pairs),
        prompts=about.prompts,
        findings=tuple(sorted(findings, key=lambda f: -f.level.rank)),
        lengths=sizes,
        labels=labels,
        words=dict(model.figures) if model else {},
        noise=noise,
        topics=about,
        composition=made_of,
        left_out=dict(reading.left_out) if reading else {},
    )


def _broken(reading: Reading) -> Iterator[DataFinding]:
    if reading.broken:
        n = len(reading.broken)
        yield DataFinding(
            "broken-records",
            level_of(n / reading.records, 0.0, 0.05),
            f"{counted(n, 'record')} of {reading.records:,} {'is' if n == 1 else 'are'} no pair; the first: "
            f"{reading.broken[0]}.",
            "Correct them, or leave them out: trimtab data convert FILE OUT --skip-broken",
            n,
            n / reading.records,
            (),
            {},
            {"problems": [str(b) for b in reading.broken[:100]]},
        )


def _scored(material: Material, scores: Mapping[str, float]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    index = np.array([i for i, p in enumerate(material.pairs) if p.id in scores], dtype=np.int64)
    if not len(index):
        raise TrimtabError(ErrorKind.DATA, "no score has the id of a pair", "one JSON object a line: id, margin")
    return index, np.array([scores[material.pairs[i].id] for i in index.tolist()], dtype=np.float64)
