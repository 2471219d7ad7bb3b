"""The pruner in real studies: threads, processes, failures, and every kind of parameter."""

import pickle
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna_training import STEPS, train

from lkgp import BFGS, InputError, fit
from lkgp.curves.comparison import learning_size
from lkgp.fitting import INTERRUPTED
from lkgp.optuna import REASON, LKGPPruner

optuna.logging.set_verbosity(optuna.logging.WARNING)


def new_study(pruner, direction="minimize", storage=None, study_name=None):
    sampler = optuna.samplers.RandomSampler(seed=0)
    return optuna.create_study(
        direction=direction, pruner=pruner, sampler=sampler, storage=storage, study_name=study_name
    )


def states(study):
    return [trial.state.name for trial in study.trials]


@pytest.fixture(scope="module")
def study():
    made = new_study(LKGPPruner(n_startup_trials=5))
    made.optimize(train, n_trials=40)
    return made


def test_it_prunes_the_bad_keeps_the_best_and_says_why(study):
    everything = new_study(optuna.pruners.NopPruner())
    everything.optimize(train, n_trials=40)
    assert study.best_value == everything.best_value
    spent = sum(len(trial.intermediate_values) for trial in study.trials)
    assert spent < 0.5 * 40 * STEPS
    assert states(study)[:5] == ["COMPLETE"] * 5
    pruned = [trial for trial in study.trials if trial.state.name == "PRUNED"]
    assert len(pruned) > 20
    assert all("better than" in trial.system_attrs[REASON] for trial in pruned)


def test_the_same_reports_make_the_same_verdicts_wherever_they_are_asked(study):
    fresh, copied = LKGPPruner(n_startup_trials=5), pickle.loads(pickle.dumps(study.pruner))
    for trial in study.trials[-3:]:
        answers = [pruner.judge(study, trial) for pruner in (study.pruner, fresh, copied)]
        assert len({answer.forecast.probability for answer in answers}) == 1


def test_values_are_maximized_just_as_well(study):
    upside = new_study(LKGPPruner(n_startup_trials=5), "maximize")
    upside.optimize(lambda trial: train(trial, sign=-1.0), n_trials=40)
    assert upside.best_value == pytest.approx(-study.best_value)
    assert states(upside).count("PRUNED") > 20


def test_warmup_and_intervals_are_kept():
    study = new_study(LKGPPruner(max_resource=STEPS, n_startup_trials=5, n_warmup_steps=3, interval_steps=4))
    study.optimize(train, n_trials=25)
    lengths = {len(trial.intermediate_values) for trial in study.trials if trial.state.name == "PRUNED"}
    assert lengths
    assert lengths <= {4, 8, 12}
    trial = study.ask()
    trial.report(float("inf"), 0)
    assert trial.should_prune()  # though it is warming up


def test_a_value_that_is_not_a_number_is_pruned_and_a_failure_is_a_warning(monkeypatch):
    study = new_study(LKGPPruner())
    trial = study.ask()
    trial.report(float("nan"), 0)
    assert trial.should_prune()
    other = study.ask()
    assert not other.should_prune()
    other.report(1.0, 0)
    monkeypatch.setattr(LKGPPruner, "judge", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match="continues because judging it failed: ZeroDivisionError"):
        assert not other.should_prune()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # which must not reach the training
        assert not other.should_prune()


def test_one_pruner_serves_two_studies():
    pruner = LKGPPruner(n_startup_trials=5)
    first, second = new_study(pruner), new_study(pruner)
    first.optimize(train, n_trials=12)
    second.optimize(lambda trial: train(trial, sign=100.0), n_trials=12)
    alone = new_study(LKGPPruner(n_startup_trials=5))
    alone.optimize(lambda trial: train(trial, sign=100.0), n_trials=12)
    assert [len(t.intermediate_values) for t in second.trials] == [len(t.intermediate_values) for t in alone.trials]


def test_odd_trials_do_no_harm():
    """Trials without reports, with sparse steps, failed ones, and one that reports more than the others."""
    study = new_study(LKGPPruner(n_startup_trials=3))
    for number in range(8):
        trial = study.ask()
        trial.suggest_float("x", 0, 1)
        if number == 3:
            study.tell(trial, 0.5)
            continue
        if number == 4:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        for step in range(0, 30 if number == 6 else 20, 5):
            trial.report(1.0 / (step + 1) + 0.1 * number, step)
            verdict = study.pruner.judge(study, study.trials[number])  # which raises what `prune` would hide
        study.tell(trial, 0.1 * number)
    assert verdict.forecast is not None or verdict.why == "the run is complete."


def test_ctrl_c_ends_the_study_and_nothing_half_learned_is_kept(monkeypatch):
    def interrupted(model, data, *, optimizer, compare_starts):
        return replace(fit(model, data, optimizer=BFGS(max_steps=1)), reason=INTERRUPTED)

    study = new_study(LKGPPruner(n_startup_trials=3))
    monkeypatch.setattr("lkgp.curves.comparison.fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        study.optimize(train, n_trials=8)
    assert not any(rule._model._learned for rule in study.pruner._rules.values())


def test_trials_that_end_out_of_order_cause_no_more_refits(monkeypatch):
    fits = []
    monkeypatch.setattr(
        "lkgp.curves.comparison.fit",
        lambda model, data, *, optimizer, compare_starts: fits.append(1) or fit(model, data, optimizer=optimizer),
    )
    study = new_study(LKGPPruner(n_startup_trials=4))
    trials = [study.ask() for _ in range(16)]
    for trial in reversed(trials):
        x = trial.suggest_float("x", 0, 1)
        for step in range(5):
            trial.report(x + 1 / (step + 1), step)
            study.pruner.judge(study, study.trials[trial.number])
        study.tell(trial, x)
    assert len(fits) <= len({learning_size(n, 4) for n in range(4, 16)})


def test_choices_that_are_lists(recwarn):
    study = new_study(LKGPPruner(n_startup_trials=3))
    for number in range(6):
        trial = study.ask()
        width = trial.suggest_categorical("hidden", [[64, 64], [32]])
        for step in range(4):
            trial.report(len(width) + 0.1 * number + 1 / (step + 1), step)
            verdict = study.pruner.judge(study, study.trials[number])
        study.tell(trial, len(width) + 0.1 * number)
    assert verdict.forecast is not None or verdict.why == "the run is complete."


def test_bad_settings_are_refused():
    for settings in (
        {"max_resource": 0},
        {"threshold": 1.5},
        {"n_startup_trials": 0},
        {"n_warmup_steps": -1},
        {"interval_steps": 0},
        {"transform": "cube"},
    ):
        with pytest.raises(InputError):
            LKGPPruner(**settings)


def test_four_threads():
    study = new_study(LKGPPruner())
    study.optimize(train, n_trials=40, n_jobs=4)
    assert set(states(study)) == {"COMPLETE", "PRUNED"}
    assert states(study).count("PRUNED") > 10


def test_two_processes_share_a_database(tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    new_study(LKGPPruner(), storage=storage, study_name="shared")
    program = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent / "support")!r})
        import optuna
        from optuna_training import train
        from lkgp.optuna import LKGPPruner
        study = optuna.load_study(study_name="shared", storage={storage!r}, pruner=LKGPPruner())
        study.optimize(train, n_trials=15, n_jobs=2)
    """)
    workers = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for worker in workers:
        _, errors = worker.communicate()
        assert worker.returncode == 0, errors
    study = optuna.load_study(study_name="shared", storage=storage)
    assert len(study.trials) == 30
    assert set(states(study)) == {"COMPLETE", "PRUNED"}
    assert any(REASON in trial.system_attrs for trial in study.trials)
