"""Pairs made of made-up sentences, all different, on several subjects; what a test plants in them is all there is."""

from __future__ import annotations

import numpy as np

from trimtab.data.records import Message, Pair, Prompt, Response

SUBJECTS = {
    "garden": "soil seed bloom water root leaf spade hedge rose compost shade prune bulb weed lawn",
    "kitchen": "flour oven salt butter knife boil simmer spice dough pan onion recipe bake whisk taste",
    "travel": "train ticket hotel map border luggage museum harbour flight guide route station visa ferry hostel",
    "music": "chord melody tempo violin rhythm choir scale tune piano drum verse octave concert singer harp",
    "repair": "hammer screw paint drill wire hinge plank glue socket wrench nail saw pipe valve ladder",
    "sky": "comet orbit planet lens eclipse meteor star galaxy lunar probe dust telescope rocket nova ray",
}
COMMON = "the a of with and for to in on how should my we you it this that from about".split()  # noqa: SIM905
ANSWER = "try first then use some after before until gently slowly often never always maybe both".split()  # noqa: SIM905


def sentence(rng: np.random.Generator, subject: str, words: int) -> str:
    """A sentence of so many words on a subject."""
    own = SUBJECTS[subject].split()
    pool = [own, COMMON, ANSWER]
    text = " ".join(str(rng.choice(pool[int(k)])) for k in rng.choice(3, size=words, p=[0.4, 0.4, 0.2]))
    return text.capitalize() + "."


def clean_pairs(n: int = 300, seed: int = 0) -> list[Pair]:
    """Pairs with nothing wrong in them."""
    rng = np.random.default_rng(seed)
    names = list(SUBJECTS)
    pairs = []
    for i in range(n):
        subject = names[i % len(names)]
        prompt = Prompt(f"q{i}", (Message("user", sentence(rng, subject, int(rng.integers(12, 20)))),))
        chosen, rejected = (Response(sentence(rng, subject, int(rng.integers(20, 60)))) for _ in range(2))
        pairs.append(Pair(f"p{i}", prompt, chosen, rejected))
    return pairs
