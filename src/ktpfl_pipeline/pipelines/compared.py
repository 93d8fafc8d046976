"""Which methods an experiment's comparison runs: what its settings `exchange` and `compare` say."""

from ktpfl_pipeline.config.schema import ALL, Experiment
from ktpfl_pipeline.methods import compared


def methods_of(experiment: Experiment) -> tuple[str, ...]:
    """Return the methods that the comparison of an experiment runs, KT-pFL first, in the order of its report.

    KT-pFL and local-only training are always included. ``all`` means the registry's methods that exchange what the
    experiment sets, and its methods with a dotted path, such as ``my_package.my_method:Nearest``.
    """
    first, *others, local = compared(one_architecture=experiment.exchange == "parameters")
    own = [method for method in experiment.methods if ":" in method]
    every = [each for each in (*others, local, *own) if each not in experiment.left_out]
    given = [each for each in experiment.compare if each == ALL or each in experiment.named]
    asked = [method for each in given for method in (every if each == ALL else [each])]
    if local not in asked:
        asked.append(local)
    return tuple(dict.fromkeys([first, *asked]))
