"""What the constitutional phase is worth with a small model: the figures of docs/constitution.md.

    python -m bench.constitution.revise [--prompts 24] [--rounds 1] [--temperature 0.7] [--out transcripts.jsonl]

Runs the embedded model on the demo's prompts and prints what is kept, and how revisions compare with their drafts by
relevance and by the likelihood judge. About two minutes a round on two cores.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.resources import files

from trimtab.config.load import default_config
from trimtab.constitution import load_constitution
from trimtab.data.prompts import read_prompts
from trimtab.data.records import CandidatePair
from trimtab.evaluation.relevance import relevance
from trimtab.labeling.judges import JudgeContext, load_judge
from trimtab.labeling.labels import label_pairs
from trimtab.models.loading import load_causal_lm, load_codec
from trimtab.pipeline.revisions import compare_with_drafts
from trimtab.sampling.critique import sample_revisions
from trimtab.sampling.transcripts import Fate, Sifted, sift, summarise_transcripts, write_transcripts

MODEL = "smollm2-135m-instruct"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="transcripts.jsonl")
    asked = parser.parse_args()
    demo = files("trimtab") / "assets" / "demo"
    constitution = load_constitution(str(demo / "constitution.toml"))
    prompts = read_prompts(str(demo / "prompts.jsonl"), limit=asked.prompts)
    settings = {"sft.source": "constitution", "sft.rounds": asked.rounds, "sft.temperature": asked.temperature}
    config = default_config(**settings, **{"label.judge": "likelihood"})
    codec = load_codec(MODEL, "auto")
    model = load_causal_lm(MODEL, "bfloat16", "auto", codec=codec)
    sifted = sift(sample_revisions(model, codec, prompts, constitution, config.sft, batch_size=24, seed=asked.seed))
    write_transcripts(asked.out, sifted)
    judge = load_judge(JudgeContext(config.label, 0, MODEL, lambda: (model, codec)))

    def by_relevance(pairs: Sequence[CandidatePair]) -> list[float]:
        texts = [p.prompt.text for p in pairs]
        before, after = (relevance(texts, [getattr(p, which).text for p in pairs]) for which in ("first", "second"))
        return [b - a for a, b in zip(before, after, strict=True)]

    def by_likelihood(pairs: Sequence[CandidatePair]) -> list[float | None]:
        labels = label_pairs(pairs, judge, constitution, batch_size=2)
        return [None if label.p_first is None else 0.5 - label.p_first for label in labels]

    whatever = [Sifted(s.transcript, Fate.KEPT, s.text) for s in sifted if s.text]
    found = {
        **summarise_transcripts(sifted),
        "relevance": compare_with_drafts(sifted, by_relevance),
        "likelihood": compare_with_drafts(sifted, by_likelihood),
        "relevance_of_all": compare_with_drafts(whatever, by_relevance),
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
