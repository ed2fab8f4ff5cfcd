"""What is normal for a judge, and from where on it is not; for verdicts and for aggregates alike.

Position and length: statistics that AlpacaEval publishes of its annotators (first response in .42 to .57 of cases,
people .52; longer response in 65 to 75 % for strong models, people 64 %). Consistency: Zheng et al. 2023, quoted from
memory. What has neither is heuristic.
"""

from __future__ import annotations

from typing import Final

SURE: Final = 3.0
"""Standard errors from which a bias is believed."""

PLACE_WARNING: Final = 0.05
"""Distance of the share of the first place from one half."""
PLACE_CRITICAL: Final = 0.10

SWAP_WARNING: Final = 0.75
"""Share of pairs judged alike in both orders: below."""
SWAP_CRITICAL: Final = 0.65

REPEAT_WARNING: Final = 0.85
"""Share of repeated questions judged alike: below (heuristic)."""
REPEAT_CRITICAL: Final = 0.70

PEOPLE_AGREE: Final = 0.66
"""Raw agreement of two people on open-ended responses: a judge below it is worth less than one more person."""

PEOPLE_LONGER: Final = 0.64
"""Share in which people prefer the longer response."""
LENGTH_WARNING: Final = 0.65
LENGTH_CRITICAL: Final = 0.85
LENGTH_EXCESS: Final = 0.03
"""By how much a judge prefers length more than people or reference labels do."""
LENGTH_LARGE_N: Final = 1000
"""Verdicts from which the share alone is enough, where nothing is known of people on the same pairs."""

OWN_WARNING: Final = 0.60
"""Share of the judge's own responses among the winners (heuristic)."""
OWN_CRITICAL: Final = 0.75
OWN_EXCESS: Final = 0.05

UNPARSED_WARNING: Final = 0.05
"""Share of calls without a verdict: above (heuristic)."""
UNPARSED_CRITICAL: Final = 0.20

ALPHA_POOR: Final = 0.4
"""Krippendorff's alpha: below, labels of several raters are poor; up to the next, tentative."""
ALPHA_TENTATIVE: Final = 0.667

TEMPLATE_FLIPS: Final = 0.25
"""Flips between templates that no plausible repeat noise reaches (heuristic), where there are no repeats."""

ANNOTATORS: Final = "annotator statistics published with AlpacaEval"
ZHENG: Final = "Zheng et al. 2023, not checked against the paper; heuristic bands"
HEURISTIC: Final = "heuristic"
