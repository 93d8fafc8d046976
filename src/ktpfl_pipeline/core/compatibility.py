"""Rules about settings that exclude a method, and a check for settings that exclude each other.

Rules between the settings of one group are in the `conflicts` method of the group (`core.settings`, `core.recipe`).

These rules are checked when a section of conf/ is read, when a `Federation` is made, and when `engine.run` starts.
So a federation built in Python follows the same rules as a section of conf/.
"""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from ktpfl_pipeline.core.errors import COVERED_METHODS
from ktpfl_pipeline.core.validation import changed


class Conflict(NamedTuple):
    """A setting that some methods exclude."""

    setting: str  # the setting with its value, such as ``adversaries.share is 0.2``
    reason: str  # why methods exclude the setting
    remedy: str  # what the user can change

    def text(self, methods: Collection[str] = ("this method",)) -> str:
        return f"{self.setting}, which excludes {', '.join(methods)}: {self.reason}. {self.remedy}."


def problems(method: Any, setting: Any) -> list[str]:
    """Return one message for each combination of settings, or of a setting and the method, that is not allowed.

    Each message begins with the path of a setting.

    Args:
        method: a method or its class; None checks only the settings themselves.
        setting: a `Setting`, or an experiment whose data are not loaded yet. Both have the same groups of settings,
            and the methods `models` and `has_public`.
    """
    groups = ("training", "distillation", "compute")
    found = [f"{name}.{each}" for name in groups for each in getattr(setting, name).conflicts()]
    if method is not None:
        found += [each.text([method.title]) for each in conflicts(method, setting)]
    return found


def conflicts(method: Any, setting: Any) -> Iterator[Conflict]:
    """Yield a conflict for each setting that `method`, a method or its class, excludes."""
    if method.one_architecture and (found := several_architectures(setting)):
        yield found
    if setting.adversaries.share and not method.exchanges <= {"predictions"}:
        yield Conflict(
            f"adversaries.share is {setting.adversaries.share}",
            "malicious clients upload false predictions, and models or prototypes are exchanged too",
            "Set adversaries.share to 0, or choose methods that exchange only predictions",
        )
    if setting.knowledge.noise and "predictions" in method.exchanges and method.exchanges != {"predictions"}:
        yield Conflict(
            f"knowledge.noise is {setting.knowledge.noise}",
            "clients also upload what has no noise",
            "Set knowledge.noise to 0, or choose methods that exchange only predictions",
        )
    if setting.training.privacy is not None and not method.covered:
        yield Conflict(
            "training.privacy is set",
            "private samples are used outside plain local training, which ε does not cover, or its class does not "
            "declare `covered`",
            f"Set training.privacy to null, or choose methods that it allows ({COVERED_METHODS})",
        )
    if method.own_step and (found := changed_step(setting)):
        yield found
    given = changed(setting.knowledge)
    if own := sorted(method.own_knowledge.intersection(given)):
        yield Conflict(
            f"knowledge.{own[0]} is {given[own[0]]}",
            "the method has its own rule for it",
            "Remove the setting, or choose other methods",
        )
    if ("predictions" in method.exchanges or method.needs_public) and (found := no_public(setting)):
        yield found


def several_architectures(setting: Any) -> Conflict | None:
    """Return the conflict between several architectures and methods that combine models; None with one architecture."""
    names: list[str] = setting.models()
    if len(names) == 1:
        return None
    return Conflict(
        f"architectures is {', '.join(names)}",
        "models are combined, which needs one architecture",
        f"Set one architecture, as in [{names[0]}], or choose methods that exchange predictions",
    )


def changed_step(setting: Any) -> Conflict | None:
    """Return the conflict between methods that prescribe the optimizer step and a setting that changes it.

    None if local training takes plain steps (`Recipe.plain`).
    """
    if not (changes := [*setting.training.beyond_plain()]):
        return None
    return Conflict(
        f"training.{changes[0]}",
        "the method prescribes the optimizer step",
        "Remove the setting, or choose other methods",
    )


def no_public(setting: Any) -> Conflict | None:
    """Return the conflict that methods on public samples have if there are none; None if there are public samples."""
    if setting.has_public():
        return None
    return Conflict(
        "public.source is none",
        "public samples are needed",
        "Set another public.source, such as open_part, or choose methods that need none",
    )
