"""The label stage with judges of every kind: what it asks, records, reports, and what a command may change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")

from openai_fakes import Fake, letters, serving
from trimtab.cli.main import main
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import plan_run, run_project, run_stage
from trimtab.pipeline.scaffold import init_project
from trimtab.report import write
from trimtab.runs.manifest import StageStatus
from trimtab.runs.run import Run

SMALL = ["project.threads=1", "sft.epochs=1", "sample.pairs_per_prompt=1"]
ENTRY_POINTS = "[trimtab.judges]\nopenai = trimtab.labeling.openai_judge:make\n"


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny project whose pairs are sampled."""
    directory = tmp_path_factory.mktemp("project")
    init_project(directory, "tiny", "fail")
    for name, lines in (("prompts", 24), ("prompts_held_out", 8), ("demonstrations", 64)):
        path = directory / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:lines]) + "\n")
    run_project(Project.open(directory, SMALL), until="sample")
    return directory


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge `openai` as a plugin, whether or not the package was installed since it came."""
    info = tmp_path / "judge_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: judge-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def server() -> Iterator[Fake]:
    def answer(body: dict[str, Any], n: int) -> Any:
        longer = len(body["messages"][1]["content"]) % 2
        return letters(-0.2, -2.0) if longer else letters(-1.5, -0.4)

    with serving(answer) as fake:
        yield fake


def of(fake: Fake, *more: str) -> list[str]:
    prices = ["label.input_price=1.0", "label.output_price=2.0"]
    return [*SMALL, "label.judge=openai", "label.model=fake", f"label.base_url={fake.url}", *prices, *more]


def result(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "runs/main/artifacts/label/result.json").read_text())
    return found


def test_a_server_labels_within_a_budget_and_goes_on(sampled: Path, server: Fake) -> None:
    with pytest.raises(TrimtabError, match="the budget is used up") as caught:
        run_stage(Project.open(sampled, of(server, "label.max_calls=10")), "label")
    assert caught.value.kind is ErrorKind.INTERRUPTED
    assert Run.open(sampled / "runs" / "main").stage("label").status == StageStatus.INTERRUPTED
    assert len(server.asked) == 10
    run = run_stage(Project.open(sampled, of(server)), "label")
    found = result(sampled)
    assert len(server.asked) == found["verdicts"] == 2 * found["labels"]
    assert found["calls"] == found["verdicts"] - 10
    assert found["tokens"] == 102 * found["verdicts"]
    assert found["cost"] == pytest.approx(found["verdicts"] * 104e-6)
    assert 0 < found["mean_mass"] < 1
    row = run.metrics("label")[-1]
    assert row["label/calls"] == found["calls"]
    assert row["label/from_store_fraction"] == pytest.approx(10 / found["verdicts"])
    assert row["label/cost"] == pytest.approx(found["cost"])
    page = write(run).read_text()
    assert "cost of the judge" in page
    # how fast and for how much is no reason to label again; another wording is
    limits = ["label.max_calls=5", "label.batch_size=3", "label.requests_per_minute=100", "label.input_price=9.0"]
    states = {s.name for s in plan_run(Project.open(sampled, of(server, *limits)), until="label")}
    assert states == set()
    states = {s.name for s in plan_run(Project.open(sampled, of(server, "label.templates=['direct']")), until="label")}
    assert states == {"label"}


def test_several_judges_wordings_and_principles(sampled: Path, server: Fake) -> None:
    far = f"{{ judge = 'openai', model = 'fake', base_url = '{server.url}' }}"
    settings = [
        *SMALL,
        f"label.judges={{ sim = {{ judge = 'simulated' }}, far = {far} }}",
        "label.templates=['plain', 'careful']",
        "label.principles=each",
        "label.aggregation=dawid-skene",
    ]
    before = len(server.asked)
    run_stage(Project.open(sampled, settings), "label")
    found = result(sampled)
    principles = len(found["principles"])
    # the simulated judge is asked once, the other in both wordings
    assert len(server.asked) - before == found["labels"] * 2 * 2 * principles
    assert [card["name"].split()[0] for card in found["judges"]] == ["simulated", "openai/plain", "openai/careful"]
    assert set(found["by_principle"]) == {p["id"] for p in found["principles"]}
    labels = [
        json.loads(line) for line in (sampled / "runs/main/artifacts/label/labels.jsonl").read_text().splitlines()
    ]
    assert set(labels[0]["principles"]) == set(found["by_principle"])
    assert labels[0]["constitution"] == found["constitution_hash"]


def test_a_dry_run_asks_nobody(sampled: Path, server: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [x for s in of(server, "label.templates=['direct']", "label.temperature=0.5") for x in ("--set", s)]
    assert main(["label", str(sampled), "--dry-run", "--json", *settings]) == 0
    told = json.loads(capsys.readouterr().out)
    assert server.asked == []
    (row,) = told["judges"]
    assert row["calls"] == row["questions"] > 0
    assert row["recorded"] == 0
    assert row["cost"] == pytest.approx((row["prompt_tokens"] + 2 * row["completion_tokens"]) / 1e6)
    assert told["total"]["calls"] == row["calls"]
    assert main(["label", str(sampled), "--dry-run", *settings]) == 0
    assert "calls left" in capsys.readouterr().out


def test_caps_on_the_command_line(sampled: Path, server: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [x for s in of(server, "label.templates=['direct']") for x in ("--set", s)]
    assert main(["label", str(sampled), "--max-calls", "6", "--json", *settings]) == 130
    told = json.loads(capsys.readouterr().out)
    assert told["error"]["kind"] == "interrupted"
    assert len(server.asked) == 6
    assert main(["label", str(sampled), "--max-cost", "0.0005", "--json", *settings]) == 130
    capsys.readouterr()
    assert 6 < len(server.asked) <= 6 + 5
    without = [x for s in of(server) if "price" not in s for x in ("--set", s)]
    assert main(["label", str(sampled), "--max-cost", "1", "--json", *without]) == 2
    assert "max_cost needs input_price" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("label.templates=['plane']", ErrorKind.CONFIG),
        ("label.templates=['gone.toml']", ErrorKind.DATA),
        ("label.api_key_env=NOT_THERE_AT_ALL", ErrorKind.MISSING),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_asked(
    sampled: Path, server: Fake, setting: str, kind: ErrorKind
) -> None:
    with pytest.raises(TrimtabError) as caught:
        run_stage(Project.open(sampled, of(server, setting)), "label")
    assert caught.value.kind is kind
    assert server.asked == []
