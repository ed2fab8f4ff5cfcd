"""What annotators are shown: balanced, leased, repeated, and without a trace of what it is."""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
import time
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reviews import GOOD, SYSTEMS, all_votes, good, item, review
from trimtab.errors import TrimtabError
from trimtab.evaluation.review.assignment import REPEAT_GAP, next_item
from trimtab.evaluation.review.records import Choice, Plan, Progress
from trimtab.evaluation.review.store import ReviewStore, create, find_review
from trimtab.evaluation.review.tally import results
from trimtab.evaluation.review.voting import progress, undo, vote


def votes_by_item(path: Path) -> Counter[int]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            "SELECT s.item, COUNT(DISTINCT v.annotator) FROM items i LEFT JOIN showings s ON s.item = i.id"
            " LEFT JOIN votes v ON v.ticket = s.ticket AND v.undone IS NULL AND v.choice <> 'skip' AND s.sample = 0"
            " WHERE i.answer IS NULL GROUP BY i.id"
        )
        return Counter(dict(rows.fetchall()))


# blinding


def test_what_is_shown_tells_nothing_of_its_origin(tmp_path: Path) -> None:
    store = review(tmp_path, 30, Plan(1, 0.2, 0.2), gold=10)
    seen = all_votes(store, "ana")
    told = [set(shown.as_dict()) for shown in seen]
    assert told == [told[0]] * len(seen)  # gold questions and repeats look like any other
    for shown in seen:
        text = json.dumps(shown.as_dict()) + repr(shown)
        assert not [s for s in (*SYSTEMS, "secret", "pair-", "answer", "swapped", "gold", "repeat", "key") if s in text]
    tickets = [shown.ticket for shown in seen]
    assert len(set(tickets)) == len(tickets)
    # no ticket is made of what it stands for: another store gives others
    (tmp_path / "other").mkdir()
    assert not set(tickets) & {s.ticket for s in all_votes(review(tmp_path / "other", 30, Plan(1)), "ana")}


def test_each_side_is_first_about_half_of_the_time_and_not_alike_for_all(tmp_path: Path) -> None:
    store = review(tmp_path, 160, Plan(2, 0, 0))
    first = {who: {s.prompt: s.a.startswith(GOOD) for s in all_votes(store, who)} for who in ("ana", "ben")}
    for sides in first.values():
        assert 55 <= sum(sides.values()) <= 105  # four standard deviations
    same = [first["ana"][prompt] == first["ben"][prompt] for prompt in first["ana"]]
    assert 55 <= sum(same) <= 105


def test_the_order_of_what_is_shown_is_not_that_of_the_items(tmp_path: Path) -> None:
    seen = [int(s.prompt[0][1].split()[1]) for s in all_votes(review(tmp_path, 50, Plan(1, 0, 0)), "ana")]
    assert sorted(seen) == list(range(50))
    rising = sum(a < b for a, b in itertools.pairwise(seen))
    assert 12 <= rising <= 37


def test_the_count_of_what_is_left_falls_by_one_whatever_was_shown(tmp_path: Path) -> None:
    seen = all_votes(review(tmp_path, 40, Plan(1, 0.15, 0.15), gold=20), "ana")
    assert [s.progress.left for s in seen] == list(range(len(seen), 0, -1))
    assert [s.progress.done for s in seen] == list(range(len(seen)))


# balance


class Model:
    """What the store ought to do, written down plainly: who voted on what, and who has what in hand."""

    def __init__(self, n: int, votes: int) -> None:
        self.prompts, self.votes = {f"question {i}" for i in range(n)}, votes
        self.given: dict[int, dict[str, str]] = defaultdict(dict)
        self.held: dict[int, dict[str, tuple[float, float]]] = defaultdict(dict)  # prompt -> end of the lease, shown
        self.undone = 1e12

    def taken(self, who: int, now: float) -> Counter[str]:
        found: Counter[str] = Counter()
        for other in {*self.given, *self.held} - {who}:
            found.update(prompt for prompt, said in self.given[other].items() if said != "skip")
            found.update(prompt for prompt, (end, _) in self.held[other].items() if end > now)
        return found

    def check(self, who: int, prompt: str | None, now: float) -> None:
        taken = self.taken(who, now)
        in_hand = {p: shown for p, (end, shown) in self.held[who].items() if end > now}
        if in_hand:
            assert prompt == max(in_hand, key=lambda p: in_hand[p])
            return
        eligible = {p for p in self.prompts - set(self.given[who]) if taken[p] < self.votes}
        assert (prompt is None) == (not eligible)
        if prompt is not None:
            assert prompt in eligible
            assert taken[prompt] == min(taken[p] for p in eligible)

    def undo(self, who: int) -> None:
        if self.given[who]:
            prompt, _ = self.given[who].popitem()
            self.undone += 1
            self.held[who][prompt] = (math.inf, self.undone)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    st.integers(1, 8),
    st.integers(1, 3),
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["vote", "vote", "vote", "skip", "undo", "leave", "late"])),
        min_size=12,
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_items_with_the_fewest_votes_come_first_and_none_gets_too_many(
    tmp_path_factory: pytest.TempPathFactory, n: int, k: int, steps: list[tuple[int, str]], seed: int
) -> None:
    with review(tmp_path_factory.mktemp("balance"), n, Plan(k, 0, 0, seed=seed, lease_s=100)) as store:
        model, now = Model(n, k), 1e9
        for who, step in steps:
            now += 1
            if step == "undo":
                assert (undo(store, "r", f"a{who}") is None) == (not model.given[who])
                model.undo(who)
                continue
            shown = next_item(store, "r", f"a{who}", now=now)
            prompt = None if shown is None else shown.prompt[0][1]
            model.check(who, prompt, now)
            if shown is None or prompt is None:
                continue
            earlier = model.held[who].get(prompt, (0.0, 0.0))[1]
            model.held[who][prompt] = (now + 100, max(earlier, now))
            if step == "late":
                now += 200
            elif step != "leave":
                vote(store, shown.ticket, "skip" if step == "skip" else "a", annotator=f"a{who}")
                model.given[who][prompt] = step
                del model.held[who][prompt]
        # fresh annotators, as many as an item needs, bring every item to its votes
        in_hand = sum(end == math.inf for held in model.held.values() for end, _ in held.values())
        for more in range(k):
            all_votes(store, f"fresh{more}")
        counts = votes_by_item(store.path)
        assert all(v >= k for v in counts.values()) or in_hand
        if "undo" not in [step for _, step in steps]:
            assert set(counts.values()) == {k}


def test_asking_again_changes_nothing(tmp_path: Path) -> None:
    store = review(tmp_path, 4, Plan(1, 0, 0))
    shown = next_item(store, "r", "ana")
    assert shown is not None
    assert next_item(store, "r", "ana") == shown
    assert shown.progress == progress(store, "r", "ana") == Progress(0, 4)


def test_two_who_ask_at_once_do_not_get_the_last_place(tmp_path: Path) -> None:
    store = review(tmp_path, 1, Plan(1, 0, 0, lease_s=60))
    mine = next_item(store, "r", "ana", now=1000.0)
    assert mine is not None
    assert next_item(store, "r", "ben", now=1059.0) is None
    assert next_item(store, "r", "ana", now=1030.0) == mine  # asked again, the same: and the lease is renewed
    assert next_item(store, "r", "ben", now=1089.0) is None
    late = next_item(store, "r", "ben", now=1091.0)
    assert late is not None
    assert next_item(store, "r", "ana", now=1092.0) is None
    vote(store, mine.ticket, "a", annotator="ana")  # late, and counts: the work is done
    vote(store, late.ticket, "a", annotator="ben")
    assert results(store).overall.votes == 2


# repeats and gold questions


def test_repeats_come_later_with_the_sides_swapped_and_at_their_rate(tmp_path: Path) -> None:
    seen = all_votes(review(tmp_path, 200, Plan(1, 0.2, 0)), "ana")
    places: dict[str, list[int]] = defaultdict(list)
    for at, shown in enumerate(seen):
        places[shown.prompt[0][1]].append(at)
    twice = [at for at in places.values() if len(at) == 2]
    assert max(map(len, places.values())) == 2
    assert len(twice) == pytest.approx(0.2 * len(seen), abs=1.5)
    for first, again in twice:
        assert again - first > REPEAT_GAP or again > 240
        assert (seen[first].a, seen[first].b) == (seen[again].b, seen[again].a)


def test_gold_questions_come_at_their_rate_and_each_once(tmp_path: Path) -> None:
    store = review(tmp_path, 100, Plan(1, 0, 0.1), gold=50)
    seen = [s.prompt[0][1] for s in all_votes(store, "ana")]
    gold = [at for at, prompt in enumerate(seen) if "g" in prompt.split()[1]]
    assert len(gold) == pytest.approx(0.1 * len(seen), abs=1.5)
    assert len({seen[at] for at in gold}) == len(gold)
    # one in every ten showings, at no fixed place
    assert [at // 10 for at in gold] == list(range(len(gold)))
    assert len({at % 10 for at in gold}) > 3


def test_the_last_gold_question_is_followed_by_none(tmp_path: Path) -> None:
    seen = all_votes(review(tmp_path, 60, Plan(1, 0, 0.3), gold=2), "ana")
    assert len(seen) == 62


def test_who_skips_is_not_asked_again_and_others_are(tmp_path: Path) -> None:
    store = review(tmp_path, 5, Plan(1, 0.2, 0))
    assert len(all_votes(store, "ana", lambda shown: Choice.SKIP)) == 5  # nothing to repeat
    assert len({s.prompt for s in all_votes(store, "ben")}) == 5


def test_one_item_is_not_repeated_at_once(tmp_path: Path) -> None:
    assert len(all_votes(review(tmp_path, 1, Plan(1, 0.5, 0)), "ana")) == 1


# votes


def test_undo_shows_the_item_again_and_keeps_what_was_undone(tmp_path: Path) -> None:
    store = review(tmp_path, 6, Plan(1, 0, 0))
    shown = []
    for _ in range(3):
        one = next_item(store, "r", "ana")
        assert one is not None
        vote(store, one.ticket, good(one), annotator="ana")
        shown.append(one)
    ahead = next_item(store, "r", "ana", now=time.time() + 60)  # of a clock that goes before ours
    assert ahead is not None
    assert undo(store, "r", "ana") == good(shown[2])
    assert undo(store, "r", "ana") == good(shown[1])
    again = next_item(store, "r", "ana")
    assert again is not None
    assert (again.ticket, again.progress.done) == (shown[1].ticket, 1)
    vote(store, again.ticket, "tie", annotator="ana")
    after = [s.ticket for s in all_votes(store, "ana")]
    assert after[:2] == [shown[2].ticket, ahead.ticket]
    overall = results(store).overall
    assert (overall.votes, overall.ties) == (6, 1)
    assert undo(store, "r", "nobody") is None
    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("SELECT COUNT(*), COUNT(undone) FROM votes").fetchone() == (8, 2)


def test_a_vote_sent_twice_is_one_and_another_is_refused(tmp_path: Path) -> None:
    store = review(tmp_path, 2, Plan(aspects=("kind",)))
    shown = next_item(store, "r", "ana")
    assert shown is not None
    for _ in range(2):
        vote(store, shown.ticket, "a", annotator="ana", aspects={"kind": "b"})
    for bad in ({"choice": "b"}, {"choice": "a", "aspects": {}}):
        with pytest.raises(TrimtabError, match="voted on otherwise"):
            vote(store, shown.ticket, **{"aspects": {"kind": "b"}, **bad}, annotator="ana")  # type: ignore[arg-type]
    assert results(store).overall.votes == 1


@pytest.mark.parametrize(
    ("ticket", "choice", "annotator", "aspects", "told"),
    [
        ("no", "a", "ana", {}, "ticket"),
        (None, "a", "ben", {}, "ticket"),
        (None, "c", "ana", {}, "no choice 'c'"),
        (None, "a", "ana", {"odd": "a"}, "no aspect 'odd'"),
        (None, "a", "ana", {"kind": "skip"}, "skipped"),
        (None, "skip", "ana", {"kind": "a"}, "skip"),
    ],
)
def test_what_is_no_vote_is_refused_and_records_nothing(
    tmp_path: Path, ticket: str | None, choice: str, annotator: str, aspects: dict[str, str], told: str
) -> None:
    store = review(tmp_path, 2, Plan(aspects=("kind",)))
    shown = next_item(store, "r", "ana")
    assert shown is not None
    with pytest.raises(TrimtabError, match=told):
        vote(store, ticket or shown.ticket, choice, annotator=annotator, aspects=aspects)
    assert progress(store, "r", "ana").done == 0


@pytest.mark.parametrize("name", ["", " ana", "a\x1b[31m", "x" * 65, "a\udcff", "a\u202eb"])
def test_a_name_that_would_upset_a_terminal_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TrimtabError, match="name of an annotator"):
        next_item(review(tmp_path, 1), "r", name)


@pytest.mark.parametrize(
    "bad",
    [
        {"votes_per_item": 0}, {"repeats": -0.1}, {"repeats": 0.3, "gold": 0.3}, {"gold": float("nan")},
        {"aspects": ("a", "a")}, {"aspects": ("overall",)}, {"aspects": ("",)}, {"lease_s": 0},
    ],
)  # fmt: skip
def test_a_plan_that_makes_no_sense_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(TrimtabError, match="a review cannot have"):
        Plan(**bad)  # type: ignore[arg-type]


# stores


def test_a_review_needs_items_and_a_free_name(tmp_path: Path) -> None:
    store = ReviewStore(tmp_path / "reviews.sqlite")
    with pytest.raises(TrimtabError, match="no review yet"):
        find_review(store)
    with pytest.raises(TrimtabError, match="nothing to review; in 3 pairs both"):
        create(store, None, [], identical=3)
    assert create(store, None, [item(0), item(0), item(1)]).items == 2
    assert create(store, None, [item(0)]).name == "review-2"
    with pytest.raises(TrimtabError, match="there is a review 'review-1'"):
        create(store, "review-1", [item(0)])
    with pytest.raises(TrimtabError, match="several reviews"):
        next_item(store, None, "ana")
    with pytest.raises(TrimtabError, match="no review 'x'"):
        next_item(store, "x", "ana")


def test_half_characters_come_back_as_they_were(tmp_path: Path) -> None:
    from dataclasses import replace

    from trimtab.data.records import Response

    store = ReviewStore(tmp_path / "reviews.sqlite")
    create(store, "r", [replace(item(0), first=Response("\ud800 one\x00"))])
    shown = next_item(store, "r", "ana")
    assert shown is not None
    assert "\ud800 one\x00" in (shown.a, shown.b)
    vote(store, shown.ticket, "a", annotator="ana", reason="so \udcff")
