"""Threads that evaluate the same draws at new points: the functions must be the same for all of them."""

import pickle

import numpy as np
from shared_models import THREADS, Count, at_once, process_settings, values_with_gaps

from lkgp import LKGP, Direct

# More seeds than sets of draws are kept, so that some are discarded and made again.
SEEDS = 7


def evaluate_everywhere(rounds: int, count: Count, seed: int = 0) -> Count:
    """Each thread samples at points of its own, at those of others and on the grid, and then everything is asked again.

    Values at new points depend on who asked first, but once given they never change: not for the other threads, nor
    when all points are requested at once, in a copy, or after saving and loading.
    """
    coords, y = values_with_gaps()
    contents = LKGP(solver=Direct()).fit(coords, y, optimize=False).to_contents()
    on_grid = {s: LKGP.from_contents(contents).sample(3, seed=s) for s in range(SEEDS)}
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        gp, before = LKGP.from_contents(contents), process_settings()
        places = [[rng.uniform(0, 2, 2), rng.uniform(0, 1, 2)] for _ in range(THREADS // 2)]
        seeds = [rng.permutation(SEEDS)[:2] for _ in range(THREADS)]

        def task(thread, gp=gp, places=places, seeds=seeds):
            found = []
            for s in map(int, seeds[thread]):
                new = places[thread % len(places)]
                found.append((s, new, gp.sample(3, new, seed=s)))
                found.append((s, None, gp.sample(3, seed=s)))
                found.append((s, [new[0], None], gp.sample(3, [new[0], None], seed=s)))
            pickle.dumps(gp)
            return found

        given = at_once([lambda thread=thread: task(thread) for thread in range(THREADS)], count)
        given = [one for found in given for one in found or ()]
        for s, new, values in given:
            if new is None:
                count.compare("draws on the grid", values, on_grid[s], 1e-9)
        _ask_again(gp, given, count, "asked again")
        _ask_again(pickle.loads(pickle.dumps(gp)), given, count, "in a copy")
        _ask_the_union(gp, places, given, count)
        if process_settings() != before:
            count.errors.append("settings of the process were left changed")
    return count


def _ask_again(gp, given, count, what):
    for s, new, values in given:
        count.compare(f"draws {what}", gp.sample(3, new, seed=s), values, 1e-8)


def _ask_the_union(gp, places, given, count):
    """All new points in one request: every thread's values are parts of the result."""
    every = [np.concatenate([place[k] for place in places]) for k in range(2)]
    whole = {s: gp.sample(3, every, seed=s) for s in {s for s, _, _ in given}}
    for s, new, values in given:
        if new is not None and new[1] is not None:
            rows, columns = (np.searchsorted(np.sort(e), n) for e, n in zip(every, new, strict=True))
            rows, columns = np.argsort(every[0])[rows], np.argsort(every[1])[columns]
            count.compare("draws in one request", whole[s][:, rows][:, :, columns], values, 1e-8)
