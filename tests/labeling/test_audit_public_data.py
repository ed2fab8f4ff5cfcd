"""Figures that are known for public verdicts; the files are not part of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.labeling.audit import CheckStatus, audit
from trimtab.labeling.verdicts import read_verdicts

DATA = Path(__file__).parents[3] / "shared" / "data"


def table(*parts):
    path = DATA.joinpath(*parts)
    if not path.is_file():
        pytest.skip(f"{path} is not there: the public data lie outside the project")
    return read_verdicts(str(path))


@pytest.fixture(scope="module")
def llmbar():
    found = table("llmbar", "judge_votes.jsonl.gz")
    wanted = ("GPT-4/Vanilla", "ChatGPT/CoT", "Falcon/CoT")
    keep = [found.judge.names.index(name) for name in wanted]
    import numpy as np

    return audit(found.take(np.isin(found.judge.codes, keep)), resamples=100)


@pytest.mark.parametrize(
    ("judge", "part", "accuracy", "inconsistent", "first"),
    [
        ("GPT-4/Vanilla", "Natural", "95.5", "5.0", "0.505"),
        ("GPT-4/Vanilla", "Adversarial", "81.0", "7.8", "0.514"),
        ("ChatGPT/CoT", "Adversarial", "29.8", "43.6", "0.71"),
        ("Falcon/CoT", "Adversarial", "50.5", "87.8", "0.94"),
    ],
)
def test_llmbar_judges_have_their_known_figures(llmbar, judge, part, accuracy, inconsistent, first):
    found = llmbar.judges[judge].slices[part]
    assert f"{100 * found.accuracy.value:.1f}" == accuracy
    assert f"{100 * found.inconsistent_rate.value:.1f}" == inconsistent
    assert f"{found.first_share.value:.{len(first) - 2}f}" == first


def test_llmbar_judges_get_the_endings_that_they_deserve(llmbar):
    good, biased, pure = (llmbar.judges[name].checks for name in ("GPT-4/Vanilla", "ChatGPT/CoT", "Falcon/CoT"))
    assert good["position-bias"].status is CheckStatus.OK
    assert good["swap-consistency"].status is CheckStatus.OK
    for checks in (biased, pure):
        assert checks["position-bias"].status is CheckStatus.BIASED
        assert checks["swap-consistency"].status is CheckStatus.POOR
        assert checks["reference-agreement"].status is CheckStatus.POOR
    assert biased["length-bias"].status is CheckStatus.BIASED


def test_pandalm_annotators_have_their_known_agreement():
    agreement = audit(table("pandalm", "testset-v1.json"), resamples=100).agreement
    kappa = {(p.first[-1], p.second[-1]): f"{p.kappa.value:.2f}" for p in agreement.pairwise}
    assert kappa == {("1", "2"): "0.85", ("1", "3"): "0.88", ("2", "3"): "0.86"}
    raw = [p.raw.value for p in agreement.pairwise]
    assert (f"{min(raw):.2f}", f"{max(raw):.2f}") == ("0.91", "0.93")
    assert f"{agreement.fleiss.value:.3f}" == "0.864"
    assert agreement.fleiss.n == 999


def test_pandalm_models_are_measured_against_the_people():
    judge = audit(table("pandalm", "gpt-3.5-turbo-testset-v1.json"), resamples=50).judges["gpt-3.5-turbo"]
    assert judge.accuracy.value == pytest.approx(0.6977, abs=0.0001)
    assert judge.outcomes["unparsed"] == 25
