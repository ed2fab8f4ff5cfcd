"""DeepSpeed-Chat's console: records of several lines, in an old and a new form,
with float16's skipped updates between."""

from __future__ import annotations

import re
from typing import Any

from trimtab.doctor.importers.numbers import number
from trimtab.doctor.importers.table import Table, TableBuilder

__all__ = ["DeepSpeedReader"]

_N = r"([+-]?[\w.+\-]+)"
_PPO = re.compile(
    r"epoch\s*:\s*(\d+)\s*\|\s*step\s*:\s*(\d+)\s*\|\s*ppo[_ ]ep(?:och)?\s*:\s*(\d+)"
    r"\s*\|\s*act(?:or)?[_ ]loss\s*:\s*" + _N + r"\s*\|\s*cri(?:tic)?[_ ]loss\s*:\s*" + _N, re.IGNORECASE,
)  # fmt: skip
_REWARD = re.compile(r"average reward score\s*:\s*" + _N, re.IGNORECASE)
_SCORES = re.compile(
    r"chosen_last_scores \(higher is better\)\s*:\s*" + _N
    + r"(?:,\s*rejected_last_scores \(lower is better\)\s*:\s*" + _N + r")?,\s*acc \(higher is better\)\s*:\s*" + _N
)  # fmt: skip
_PAIRS = re.compile(r"^chosen:\s*" + _N + r",\s*rejected:\s*" + _N + r",\s*loss:\s*" + _N)
_PERPLEXITY = re.compile(r"^ppl:\s*" + _N + r"(?:,\s*loss:\s*" + _N + ")?")
_EPOCH_LOSS = re.compile(r"Epoch (\d+)/(\d+) with loss\s*" + _N)
_EPOCH = re.compile(r"Epoch (\d+)/(\d+)")
_BATCHES = re.compile(r"Beginning of Epoch (\d+)/(\d+), Total (?:Generation|Micro) Batches (\d+)")
_STATE = re.compile(r"\[Rank 0\] step=(\d+), skipped=(\d+), lr=\[([^,\]]+)")
_MICRO = re.compile(r"micro_step=(\d+)/global_step=(\d+)")
_SCALE = re.compile(r"reducing to ([\d.]+)")
_OPTION = re.compile(r"--([A-Za-z_]\w*)(?:[ =]((?!--)\S+))?")


class DeepSpeedReader:
    """Rows of PPO steps, or of evaluations and optimizer steps for the other two stages."""

    def __init__(self) -> None:
        self._builder = TableBuilder("deepspeed-console")
        self._pending: dict[str, float] = {}
        self._states = 0
        self._ppo = False
        self._found = False
        self._rows: list[tuple[int, dict[str, Any], int]] = []
        self._epochs_of: dict[int, int] = {}
        self._step = 0
        self._epoch = 0
        self._size = 0
        self._epochs = 1
        self._ratio = 1.0

    def feed(self, line: str, line_number: int) -> bool:
        """Look at a line."""
        before = len(self._rows)
        if "verflow" in line or "OVERFLOW" in line:
            self._overflow(line)
        elif "step=" in line or "micro_step" in line:
            self._state(line, line_number)
        elif "poch" in line or "loss" in line or "score" in line or line.startswith("ppl"):
            self._record(line, line_number)
        elif line.startswith("cmd =") or ("main.py" in line and "--" in line):
            self._options(line)
        if not self._builder.config and "cmd = " in line:
            self._options(line)
        return len(self._rows) > before

    def finish(self) -> Table | None:
        """The table; None where no line was DeepSpeed-Chat's own."""
        if not self._found:
            return None
        for i, (step, row, line) in enumerate(self._rows):
            self._builder.add(row, line, step=step if self._step or self._ppo else self._epochs_of.get(i, step))
        total = self._size * self._epochs / (1 if self._ppo else self._ratio)
        self._builder.planned_steps = round(total) or None
        return self._builder.table()

    def _record(self, line: str, line_number: int) -> None:
        if (match := _BATCHES.search(line)) is not None:
            self._epoch, self._epochs, self._size = int(match.group(1)), int(match.group(2)), int(match.group(3))
        elif (match := _PPO.search(line)) is not None:
            epoch, step = int(match.group(1)), int(match.group(2))
            losses = {"act_loss": number(match.group(4)), "cri_loss": number(match.group(5))}
            row = {"precision/overflow": 0.0, **self._pending, **losses}
            self._ppo = self._found = True
            self._pending, self._states = {}, 0
            self._rows.append((epoch * self._size + step, row, line_number))
        elif (match := _REWARD.search(line)) is not None:
            if self._rows and self._ppo:
                self._rows[-1][1].setdefault("reward", number(match.group(1)))
        elif (match := _SCORES.search(line)) is not None:
            row = {"chosen_last_scores": number(match.group(1)), "acc": number(match.group(3))}
            if match.group(2):
                row["rejected_last_scores"] = number(match.group(2))
            self._evaluated(row, line_number)
        elif (match := _PAIRS.search(line)) is not None:
            names = ("chosen", "rejected", "loss")
            self._evaluated(dict(zip(names, map(number, match.groups()), strict=True)), line_number)
        elif (match := _PERPLEXITY.search(line)) is not None:
            row = {"ppl": number(match.group(1))}
            self._evaluated(row | ({"loss": number(match.group(2))} if match.group(2) else {}), line_number)
        elif (match := _EPOCH_LOSS.search(line)) is not None:
            self._evaluated({"train_loss": number(match.group(3))}, line_number, epoch=int(match.group(1)))
        elif "Evaluating" in line and (match := _EPOCH.search(line)) is not None:
            self._epoch = int(match.group(1))

    def _evaluated(self, row: dict[str, float | None], line: int, *, epoch: int | None = None) -> None:
        """A row of an evaluation: at the optimizer step where those are printed, else at the epoch."""
        self._found = True
        self._rows.append((self._step, {k: v for k, v in row.items() if v is not None}, line))
        self._epochs_of[len(self._rows) - 1] = self._epoch if epoch is None else epoch

    def _overflow(self, line: str) -> None:
        if "kipping step" not in line and "Grad overflow" not in line:
            return
        if "kipping step" in line:
            self._pending["precision/overflow"] = self._pending.get("precision/overflow", 0.0) + 1
        if (match := _SCALE.search(line)) is not None and (scale := number(match.group(1).rstrip("."))) is not None:
            before = self._pending.get("precision/loss_scale")
            self._pending["precision/loss_scale"] = scale if before is None else min(before, scale)

    def _state(self, line: str, line_number: int) -> None:
        if (match := _MICRO.search(line)) is not None:
            micro, whole = int(match.group(1)), int(match.group(2))
            self._ratio = micro / whole if whole else self._ratio
            return
        match = _STATE.search(line)
        if match is None:
            return
        self._step = max(self._step, int(match.group(1)))
        skipped, rate = float(match.group(2)), number(match.group(3))
        self._states += 1
        if self._states == 1 and rate is not None:
            self._pending["log/lr"] = rate
        elif self._states == 2 and rate is not None:
            self._pending["critic_lr"] = rate
        if not self._ppo:
            self._rows.append(
                (int(match.group(1)), {**self._pending, "precision/skipped_updates": skipped}, line_number)
            )
            self._pending, self._states = {}, 0
        else:
            before = self._pending.get("precision/skipped_updates", 0.0) if self._states > 1 else 0.0
            self._pending["precision/skipped_updates"] = before + skipped

    def _options(self, line: str) -> None:
        for name, value in _OPTION.findall(line[:20_000]):
            x = number(value)
            whole = int(x) if x is not None and x.is_integer() and abs(x) < 2**53 else x
            self._builder.config.setdefault(name, (value or True) if whole is None else whole)
