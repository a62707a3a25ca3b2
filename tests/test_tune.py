"""Tuning: legal schedules are measured, the fastest is kept and used, and stopping loses nothing."""

import json
import os
import threading

import numpy as np
import pytest
import redfuser_algebra as ra
from lowered import verdict

from redfuser_algebra import cli
from redfuser_algebra.lower.cache import cache_folder, written_whole
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.run import cpu, kernels, schedules, tune


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Seconds come from a table, and no kernel runs: the fastest is a tile of 256."""
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "_kernels", {})
    asked = []

    def run(operator, form, binding, schedule):
        asked.append(schedule)
        return 0.0

    monkeypatch.setattr(tune, "run_cpu", run)
    monkeypatch.setattr(tune, "_seconds", lambda call: (call(), abs(asked[-1].tile - 256) + 1.0)[1])
    return asked


def test_the_fastest_is_used_afterwards_for_lengths_like_these(measured):
    fused, x = verdict("variance").fused, np.zeros((64, 1000), np.float32)
    kernel = fused.kernel("cpu")
    before = kernel.schedule_for(64, l=1000)
    found = fused.tune(x)
    assert list(found.values()) == sorted(found.values()) and next(iter(found)).tile == 256 != before.tile
    assert kernel.schedule_for(64, l=1000).tile == kernel.schedule_for(60, l=1100).tile == 256
    assert kernel.schedule_for(64, l=8000).tile != 256
    assert fused.kernel("cpu", schedule=Schedule(7)).schedule_for(64, l=1000) == Schedule(7)


def test_stopping_loses_nothing_and_what_is_known_is_not_measured_again(measured, monkeypatch):
    fused, x = verdict("variance").fused, np.zeros((64, 1000), np.float32)

    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fused.tune(x, progress=stop)
    assert len(measured) == 2
    told = []
    found = fused.tune(x, progress=lambda done, total: told.append((done, total)))
    assert len(measured) == len(set(measured)) == len(found) and told[-1][0] == told[-1][1] == len(found)


def test_a_broken_file_is_as_good_as_none(measured, tmp_path):
    path = cache_folder() / schedules.FILE
    fused, x = verdict("variance").fused, np.zeros((64, 1000), np.float32)
    fused.tune(x)
    whole = path.read_bytes()
    key = json.loads(whole.splitlines()[-1])["key"]
    broken = [json.dumps({"key": key, **row}) for row in ({"tile": 0, "seconds": 1}, {"tile": 8, "width": 3, "seconds": 1}, {"tile": 4}, {"tile": 4, "seconds": "x"})]
    for text in ("{", "[1]", "5", "null", '{"key": ', *broken):
        path.write_text(text)
        assert schedules.measured(key) == {}
        schedules.keep(key, Schedule(8), 1.0)
        assert schedules.measured(key) == {Schedule(8): 1.0}, "what was cut off does not hide what follows"
    path.write_bytes(b"\xff\xfe" + whole)
    assert len(schedules.measured(key)) == len(whole.splitlines()) - 1


def test_a_kept_schedule_that_does_not_fit_is_not_used(measured):
    fused, x = verdict("variance").fused, np.arange(4000.0, dtype=np.float32).reshape(4, 1000)
    compiled = cpu.planned(fused.operator, fused.form, fused.operator.bind(x), None, None).compiled
    schedules.keep(schedules.key_of(compiled.title, {"l": 1000}, 4), Schedule(64, parts=1024), 0.0)
    compiled.schedules.clear()
    assert fused.kernel("cpu").schedule_for(4, l=1000).parts <= 1000
    assert np.allclose(fused(x, backend="cpu"), x.var(1))


def test_processes_that_tune_side_by_side_lose_nothing(measured):
    def tuning(number):
        for tile in range(1, 21):
            schedules.keep(f"kernel {number} l=1", Schedule(tile), float(tile))

    threads = [threading.Thread(target=tuning, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(schedules.measured(f"kernel {number} l=1")) for number in range(4)] == [20] * 4


def test_a_full_disk_is_told_and_a_folder_that_cannot_be_written_is_replaced(measured, monkeypatch, tmp_path):
    (tmp_path / "kernels").mkdir(exist_ok=True)
    (tmp_path / "kernels" / schedules.FILE).mkdir()
    with pytest.raises(ra.OperatorError, match="cannot be written"):
        schedules.keep("kernel l=1", Schedule(8), 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda folder, mode: False)
        assert cache_folder() == cache_folder() != tmp_path / "kernels"
    with pytest.raises(OSError):
        written_whole(tmp_path / "kernels", b"text")
    assert [*tmp_path.iterdir()] == [tmp_path / "kernels"]


def test_there_must_be_a_kernel():
    with pytest.raises(ra.OperatorError, match="no kernel for such a call"):
        verdict("variance").fused.tune(np.zeros(0, np.float32))


def test_candidates_are_legal_and_measured_in_the_order_of_the_model(measured):
    fused, x = verdict("softmax").fused, np.zeros((3, 5000), np.float32)
    found = fused.tune(x)
    for schedule in found:
        cpu.check(fused.kernel("cpu").program, schedule, 5000)
    assert measured[0].tile > 64


def test_the_command_shows_the_schedules_fastest_first(measured, capsys):
    assert cli.status_of(["tune", "variance", "--shape", "l=1000", "--batch", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ms", "schedule"] and "tiles of 256" in lines[1] and len(lines) == len(measured) + 1


@pytest.mark.parametrize(("shape", "said"), [("l1000", "m=4096,l=8192"), ("l=0", "m=4096,l=8192"), ("m=3", "give all: m=…,k=…,l=…,j=…")])
def test_a_shape_that_makes_no_sense_is_one_message(shape, said, capsys):
    assert cli.status_of(["tune", "attention", "--shape", shape]) == cli.BAD_INPUT
    assert said in capsys.readouterr().err
