"""What the doctor says of judgments, prescriptions and in its explanations is complete in both languages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import trimtab.doctor.detectors as detectors
from made_up_judgments import Rows, look, pair_rows, score_rows, verdicts
from trimtab.doctor.finding import Message
from trimtab.doctor.messages import Text, explain, judgments, prescriptions
from trimtab.doctor.messages.catalogue import placeholders, render
from trimtab.doctor.plan import PLAN

ALL: dict[str, Text] = {**judgments.MESSAGES, **prescriptions.MESSAGES, **explain.MESSAGES}
HAN = re.compile("[\u4e00-\u9fff]")


@pytest.mark.parametrize("key", sorted(ALL))
def test_both_languages_say_the_same(key: str) -> None:
    en, zh = ALL[key]
    assert en.strip() == en
    assert zh.strip() == zh
    assert en
    assert not HAN.search(en)
    assert HAN.search(zh) or en == zh
    assert placeholders(en) == placeholders(zh)
    assert en.count("\n") == zh.count("\n")


def test_rooms_share_no_key() -> None:
    assert len(ALL) == len(judgments.MESSAGES) + len(prescriptions.MESSAGES) + len(explain.MESSAGES)


@pytest.mark.parametrize("id", sorted(PLAN))
def test_every_page_is_complete(id: str) -> None:
    for part in ("title", "what", "signals", "confusers", "fixes"):
        assert explain.MESSAGES[f"{id}.{part}"].en
    assert len(explain.MESSAGES[f"{id}.what"].en) > 40
    assert not placeholders(explain.MESSAGES[f"{id}.what"].en)


@pytest.mark.parametrize("module", ["judge", "judge_statistics", "scores", "preference_data"])
def test_every_evidence_that_a_detector_names_is_worded(module: str) -> None:
    source = (Path(detectors.__file__).parent / f"{module}.py").read_text(encoding="utf-8")
    endings = {key.partition(".")[2] for key in judgments.MESSAGES}
    named = set(re.findall(r'evidence\(\s*id,\s*"([a-z-]+)"', source)) | set(
        re.findall(r'cause="(cause[a-z-]*)"', source)
    )
    assert named
    assert named <= endings


FAULTY: list[Rows] = [
    verdicts(0, 300, place=2.0, accuracy=0.7, unparsed=0.1),
    verdicts(0, 400, accuracy=0.6, length=3.0),
    score_rows(0, 500, spread=0.3, temperature=8),
    score_rows(0, 500, spread=1.5, length=3),
    score_rows(0, 300, scale=0.0),
    pair_rows(0, 400, longer=0.9, prompts=4),
    [{"n": 2000, "longer_wins": 0.9, "self_pref": 0.9, "self_n": 80, "first_wins": 0.7, "flip_rate": 0.5}],
    [{"n_pairs": 1000, "fold_accs": [0.51, 0.53], "train_acc": 0.9}],
]


@pytest.mark.parametrize("number", range(len(FAULTY)))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_sentence_of_a_finding_is_filled(number: int, lang: str) -> None:
    findings = look(FAULTY[number])[0]
    assert findings
    for finding in findings.values():
        messages: list[Message] = [finding.cause, *finding.ruled_out, *(e.text for e in finding.evidence)]
        for message in messages:
            assert message.key in ALL
            sentence = render(message, lang)
            assert "{" not in sentence
            assert bool(HAN.search(sentence)) == (lang == "zh")
