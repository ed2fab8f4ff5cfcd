"""The light part stays light: these modules import without torch (and quickly)."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = [
    "trimtab.errors",
    "trimtab.config",
    "trimtab.config.load",
    "trimtab.config.presets",
    "trimtab.config.schema",
    "trimtab.config.template",
    "trimtab.constitution",
    "trimtab.cli.data",
    "trimtab.data",
    "trimtab.data.check",
    "trimtab.data.convert",
    "trimtab.data.demonstrations",
    "trimtab.data.filtering",
    "trimtab.data.noise",
    "trimtab.data.pairs",
    "trimtab.data.prompts",
    "trimtab.evaluation.relevance",
    "trimtab.evaluation.review",
    "trimtab.runs",
    "trimtab.runs.callbacks",
    "trimtab.runs.files",
    "trimtab.runs.progress",
    "trimtab.runs.run",
    "trimtab.runs.signals",
    "trimtab.scoring",
]


@pytest.mark.parametrize("module", MODULES)
def test_imports_without_torch(module):
    code = f"""
import importlib, sys
module = importlib.import_module({module!r})
for name in getattr(module, "__all__", ()):
    getattr(module, name)
heavy = [m for m in ("torch", "transformers", "scipy", "sklearn", "pandas") if m in sys.modules]
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
