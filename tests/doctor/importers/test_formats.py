"""Each framework's log is recognised from its content, under any name; series are canonical, steps its own."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from made_up_logs import FORMS, Form
from trimtab.doctor.importers import read
from trimtab.doctor.log import Log


def _log(path: Path, **mapping: str) -> Log:
    (log,) = read(path, mapping)
    assert isinstance(log, Log)
    return log


def _check(log: Log, form: Form) -> None:
    assert (log.framework, log.algorithm) == (form.framework, form.algorithm)
    assert log.planned_steps == form.planned
    for key, values in form.expected.items():
        assert key in log.series, f"{key} is missing among {sorted(log.series)}"
        series = log.series[key]
        np.testing.assert_allclose(series.values, values, rtol=1e-12, atol=1e-15, err_msg=key)
        if len(values) == len(form.steps):
            assert series.steps.tolist() == form.steps, key
    assert log.unmapped == ()
    assert not log.truncated


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_a_log_is_read_as_what_it_is(form: Form, tmp_path: Path) -> None:
    path = tmp_path / "some.dat"
    path.write_text(form.text, encoding="utf-8")
    _check(_log(path), form)


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_neither_encoding_nor_compression_matters(form: Form, tmp_path: Path) -> None:
    path = tmp_path / "log"
    for data in (form.text.encode("utf-16"), form.text.encode("utf-8-sig"), gzip.compress(form.text.encode()),
                 form.text.replace("\n", "\r\n").encode()):  # fmt: skip
        path.write_bytes(data)
        _check(_log(path), form)
