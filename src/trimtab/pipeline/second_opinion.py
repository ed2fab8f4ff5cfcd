"""How good is the judge? The cheapest answer that a run can give itself: another judge is asked about some labels.

The likelihood judge with the reference policy needs no server and no second model. It says whether the responses differ
in the way that the labels say, in the eyes of the model that is about to be trained; it does not know what people
prefer (docs/judges.md has how often it agrees with them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.data.records import CandidatePair
from trimtab.labeling.active import choose
from trimtab.labeling.judges import load_panel
from trimtab.labeling.labels import Label, label_pairs
from trimtab.labeling.store import LabelStore
from trimtab.pipeline.build import Workshop
from trimtab.stats.intervals import clustered_share, wilson

__all__ = ["second_opinion"]

_STREAM = 1
"""Keeps the sample apart from other choices that are made with the project's seed."""


def second_opinion(
    shop: Workshop, pairs: Sequence[CandidatePair], labels: Sequence[Label], store: LabelStore
) -> dict[str, Any]:
    """Agreement of the likelihood judge with `label.audit_sample` labels, drawn by chance and spread over the prompts.

    Returns:
        `judge`; `n`, how many labels were put before it; `answered`; `agreement`, the share of the n of which it names
        the same response, with a 95 % interval. Empty without a label that names a response.
    """
    config = shop.project.config
    member = config.label.model_copy(
        update={"judge": "likelihood", "judges": {}, "model": None, "templates": ["plain"], "audit_sample": 0}
    )
    decided = [(p, y.p_first) for p, y in zip(pairs, labels, strict=True) if y.p_first is not None and y.p_first != 0.5]
    drawn = choose(
        [p for p, _ in decided], config.label.audit_sample, rule="random", seed=config.project.seed + _STREAM
    )
    if not len(drawn):
        return {}
    sample = [decided[i] for i in sorted(drawn.tolist())]
    asked = [pair for pair, _ in sample]
    judges = load_panel(member, seed=config.project.seed, models=shop.judge_model)
    found = label_pairs(asked, judges, shop.project.constitution, store=store, batch_size=config.label.batch_size)
    same = [
        float(other.p_first is not None and (other.p_first - 0.5) * (p_first - 0.5) > 0)
        for other, (_, p_first) in zip(found, sample, strict=True)
    ]
    number = {pair.prompt.messages: i for i, pair in enumerate(asked)}
    groups = np.array([number[pair.prompt.messages] for pair in asked])
    # labels of one prompt may stand or fall together
    agreement = wilson(sum(same), len(same)) if len(number) == len(same) else clustered_share(same, groups)
    return {
        "judge": "likelihood",
        "n": len(sample),
        "answered": sum(other.usable for other in found),
        "agreement": agreement._asdict(),
    }
