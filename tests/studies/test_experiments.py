"""Experiments resume, lose nothing, and name what is wrong."""

from dataclasses import replace

import pytest

from lkgp import InputError
from lkgp.studies import experiments, records
from lkgp.studies.pages.sections import latest, method_names
from lkgp.studies.runs import perform_in_own_process


def test_runs_resume_and_nothing_is_lost(curves_folder, tmp_path, monkeypatch):
    path = tmp_path / "lcbench.jsonl"
    wanted = experiments.plan("lcbench", "small", methods=["LKGP", "CaGP"], datasets=["segment"], seeds=1)
    done = []

    def alone(run, timeout):
        done.append(run)
        if run.method == "CaGP" and len(done) < 3:
            return {**run.__dict__, "failed": "it was interrupted"}
        return {**run.__dict__, "test_nll": 0.1, "test_rmse": 0.2, "seconds": 1.0}

    monkeypatch.setattr(experiments, "perform_in_own_process", alone)
    said = []
    experiments.run_all(wanted, path, said.append)
    assert [run.method for run in done] == ["LKGP", "CaGP"]
    with path.open("a") as file:
        file.write('{"experiment": "lcb')  # the machine went down
    experiments.run_all(wanted, path, said.append)
    assert [run.method for run in done] == ["LKGP", "CaGP", "CaGP"]  # only what had failed
    kept = records.read(path)
    assert len(kept) == 3
    assert [r.get("failed") for r in latest(kept)] == [None, None]
    assert "2 runs, 1 already done" in said
    # A result that only lacks the end of its line is one; what took too long is tried again with more time only.
    path.write_text(path.read_text().rstrip("\n"))
    records.append(path, {**wanted[0].__dict__, "seed": 7, "failed": "not done after 60 s", "limit": 60.0})
    assert len(records.read(path)) == 4
    slow = replace(wanted[0], seed=7)
    experiments.run_all([slow], path, said.append, timeout=60.0)
    assert len(done) == 3
    experiments.run_all([slow], path, said.append, timeout=61.0)
    assert done[3:] == [slow]
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(InputError, match="line 1 of"):
        records.read(path)


def test_a_run_in_a_process_of_its_own_is_scored_or_says_why_not(curves_folder):
    good = experiments.plan("lcbench", "small", methods=["LKGP"], datasets=["segment"], seeds=1)[0]
    record = perform_in_own_process(good, 3600.0)
    assert record["test_rmse"] < 1
    assert record["observed"] < record["cells"] == 480
    assert record["peak_memory"] > 1e7
    assert record["versions"]["torch"]
    assert len(record["shown"]["mean"][0]) == 12
    bad = experiments.plan("climate", "paper", methods=["LKGP"], datasets=["TG"], missing=[0.1], seeds=1)[0]
    assert "days of TG" in perform_in_own_process(bad, 3600.0)["failed"]
    assert perform_in_own_process(good, timeout=0.01)["failed"] == "not done after 0 s"


def test_plans_name_what_is_wrong():
    with pytest.raises(InputError, match="no experiment 'robot'"):
        experiments.plan("robot", "small")
    with pytest.raises(InputError, match="no preset 'tiny'"):
        experiments.plan("sarcos", "tiny")
    with pytest.raises(InputError, match="no method 'GP'"):
        experiments.plan("sarcos", "small", methods=["GP"])
    assert len(experiments.plan("lcbench", "paper", methods=["LKGP"])) == 350
    assert len(experiments.plan("sarcos", "small")) == 9 * len(method_names())
