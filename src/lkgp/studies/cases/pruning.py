"""Which learning curves are replayed as tuning, to compare lkgp's pruner with others."""

from lkgp.studies.registry import MEASUREMENTS, Measurement

# The sets that lkgp's own settings and prior were chosen on.
SETS = (
    "APSFailure",
    "Australian",
    "Fashion-MNIST",
    "KDDCup09_appetency",
    "MiniBooNE",
    "adult",
    "blood-transfusion-service-center",
    "cnae-9",
    "covertype",
    "fabert",
    "higgs",
    "segment",
)
# The sets of which half of the replays were looked at for that, too. Here every pruner is run with its default only.
OTHER_SETS = (
    "Amazon_employee_access",
    "albert",
    "bank-marketing",
    "christine",
    "credit-g",
    "jannis",
    "jungle_chess_2pcs_raw_endgame_complete",
    "kc1",
    "kr-vs-kp",
    "nomao",
    "phoneme",
    "shuttle",
    "vehicle",
)


def register(name: str, function: str, *arguments: object) -> None:
    function = f"measurements.pruning:{function}"
    MEASUREMENTS.register(Measurement(name, "pruning", function, arguments, needs=("optuna",), order=3))


for dataset in (*SETS, *OTHER_SETS):
    register(f"pruning-{dataset}", "measure", dataset, dataset in SETS)
for dataset in (*SETS, *OTHER_SETS):
    register(f"pruning-fresh-{dataset}", "measure_fresh", dataset)
register("pruning-many", "measure_many", SETS[0])
