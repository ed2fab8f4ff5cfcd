"""The real entry point in a process of its own: how fast it answers and what it imports."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab import __version__

ENTRY = "import sys; from trimtab.cli.main import main; sys.exit(main())"
SOURCE = Path(__file__).parents[2] / "src"


def start(*arguments: str, code: str = ENTRY, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "COLUMNS": "100", **environment}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=env, timeout=60, check=False
    )


def test_help_answers_in_half_a_second():
    """Processor time, so that other work on the machine does not count; on an idle one it is the time one waits."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert start("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.5


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["pm", "eval", "--help"], ["signals"]])
def test_nothing_heavy_is_imported_for_help_and_signals(arguments: list[str]):
    code = (
        "import sys; from trimtab.cli.main import main; main(sys.argv[1:]); "
        "print('LOADED', *sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    loaded = start(*arguments, code=code).stdout.rpartition("LOADED ")[2].split()
    assert "trimtab" in loaded
    assert not {"torch", "transformers", "numpy", "scipy", "jinja2"} & set(loaded)


@pytest.mark.parametrize("command", ["runs", "show", "plan", "config"])
def test_looking_at_a_project_needs_no_torch(command: str, project: Path, make_run):
    make_run(project / "runs", "main", score_mean=1.0)
    arguments = {
        "runs": ["runs", str(project)],
        "show": ["show", "main", str(project)],
        "plan": ["run", str(project), "--dry-run"],
        "config": ["config", "show", str(project)],
    }[command]
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None\n"
        "from trimtab.cli.main import main; sys.exit(main())"
    )
    done = start(*arguments, code=code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_a_stage_without_torch_names_the_extra(project: Path):
    code = "import sys; sys.modules['torch'] = None; from trimtab.cli.main import main; sys.exit(main())"
    plain = start("sft", str(project), code=code)
    assert plain.returncode == 4
    assert plain.stderr.endswith("error: torch is not installed\n  pip install 'trimtab[train]'\n")
    as_json = start("sft", str(project), "--json", code=code)
    assert as_json.returncode == 4
    assert json.loads(as_json.stdout)["error"] == {
        "kind": "missing",
        "message": "torch is not installed",
        "hint": "pip install 'trimtab[train]'",
    }


def test_version():
    done = start("--version")
    assert (done.returncode, done.stdout) == (0, f"trimtab {__version__}\n")


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
    ],
)
@pytest.mark.parametrize("command", ["runs", "help"])
def test_colours_follow_the_environment(command: str, environment: dict[str, str], coloured: bool, project, make_run):
    make_run(project / "runs", "main", score_mean=1.0)
    arguments = ["--help"] if command == "help" else ["runs", str(project)]
    out = start(*arguments, **{"TERM": "xterm", **environment}).stdout
    green_cyan_or_yellow = any(f"\x1b[{code}m" in out for code in ("32", "36", "33", "1;36", "1;32", "1;33"))
    assert green_cyan_or_yellow is coloured


def test_a_reader_that_goes_away_is_no_error():
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {ENTRY!r}, 'signals', '--json'],"
        " stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)\n"
        "child.stdout.close()\n"
        "print(child.wait(), repr(child.stderr.read()))"
    )
    assert start(code=code).stdout == "0 ''\n"


def test_a_locale_that_lacks_a_character_does_not_stop_the_output(project: Path, make_run):
    make_run(project / "runs", "größe", score_mean=1.0)
    done = start("runs", str(project), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfe" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a device that is always full")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_disk_behind_stdout_is_one_line_on_stderr(options: list[str]):
    code = f"import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); {ENTRY}"
    ended = start("doctor", "--demo", "nan-inf", *options, code=code)
    assert ended.returncode == 1
    assert ended.stderr == "error: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_closed_stdout_costs_the_text_and_not_the_exit_code(options: list[str]):
    command = [sys.executable, "-c", ENTRY, "doctor", "--demo", "nan-inf", *options]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)}
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    ended = subprocess.run(closed, stderr=subprocess.PIPE, text=True, env=env, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (3, "")


def test_the_doctor_loads_nothing_that_a_training_log_does_not_need(tmp_path: Path):
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"step": i, "loss": 1.0 / i, "reward": 0.1 * i}) + "\n" for i in range(1, 100)))
    code = (
        "import sys; from trimtab.cli.main import main; main(sys.argv[1:]); "
        "print('LOADED', *sorted({'.'.join(m.split('.')[:2]) if m.startswith('trimtab') else m.partition('.')[0] "
        "for m in sys.modules}))"
    )
    loaded = set(start("doctor", str(log), code=code).stdout.rpartition("LOADED ")[2].split())
    assert "trimtab.doctor" in loaded
    unneeded = {"torch", "transformers", "scipy", "pandas", "jinja2", "yaml", "openai", "http", "sqlite3"}
    assert not (unneeded | {"trimtab.labeling", "trimtab.constitution", "trimtab.data"}) & loaded
