"""The faults: what is done to a run, and when; and a list of them for each seed."""

import random
from dataclasses import dataclass

from moments import (
    ARTIFACT,
    CHECKPOINT,
    CLIENTS,
    DATA,
    DATABASE,
    DISTILLATION,
    FIGURE,
    PARTITION,
    REPORT,
    RESULT,
    SETTINGS,
    TRAINING,
    Moment,
)
from stage import BEGUN, FINISHED, FRESH, Stage

KILLED, FULL, AWAY = "killed with SIGKILL", "disk full", "tracking database taken away"
UNREADABLE, DAMAGED, WORKER = "file unreadable", "file damaged", "worker killed"
MEMORY, TERMINAL, LINK = "memory used up", "terminal taken away", "folder is a broken link"
FOREIGN = "other content, right checksum"
TERMINAL_WAYS = ("standard output on a full disk", "closed by its reader", "not UTF-8")
AT_ANY_TIME = "at any time"
WHATS = ("read", "write", "rename", "step", "statement")
BEFORE, BEFORE_MISSING, FROM_THE_START = "before the run", "before --only-missing-outputs", "from the start"
STORE_WAYS = ("deleted", "moved away", "replaced by a folder", "overwritten", "locked for a second", "locked for good")
SURVIVED, REFUSED, LOST = "survived", "refused", "lost"


@dataclass(frozen=True)
class Fault:
    """One fault, at one moment of one run.

    Attributes:
        kind: what is done.
        way: how, of the kinds that have several.
        start: the snapshot that the run starts from.
        moment: the place and what happens there; None for those that strike while nothing runs, or at any time.
        number: which of these moments, from 1.
        amount: milliseconds, bytes, or a share, as the way needs.
    """

    kind: str
    way: str
    start: str
    moment: Moment | None
    number: int
    amount: float

    @property
    def place(self) -> str:
        """Where it hits."""
        return AT_ANY_TIME if self.moment is None else self.moment[0]

    def __str__(self) -> str:
        """Say all that is needed to do it again."""
        at = AT_ANY_TIME if self.moment is None else f"{' '.join(self.moment)} {self.number}"
        return f"{self.kind} ({self.way}; {self.amount:.3g}), {self.start} run, {at}"


@dataclass(frozen=True)
class Outcome:
    """What came of a fault.

    Attributes:
        fault: the fault.
        verdict: survived, refused or lost; empty if the run had ended before its moment.
        sentences: what was said.
        why: of a lost one, what is wrong.
        seconds: how long all runs of it took.
    """

    fault: Fault
    verdict: str
    sentences: tuple[str, ...] = ()
    why: str = ""
    seconds: float = 0.0


def draw(stage: Stage, number: int, seed: int) -> list[Fault]:
    """Return so many faults, the same for the same seed and the same project.

    Kinds take turns; within a kind the places do, and which of a place's moments is drawn.
    """
    generator = random.Random(seed)
    makers = [_killed, _full, _away, _damaged, _killed, _unreadable, _full, _worker, _killed, _away]
    makers += [_memory, _damaged, _terminal, _linked]
    turns = dict.fromkeys(makers, 0)
    found = []
    for n in range(number):
        make = makers[n % len(makers)]
        found.append(make(stage, generator, turns[make]))
        turns[make] += 1
    return found


def _turn(stage: Stage, start: str, places: list[str], turn: int) -> str:
    """Return whose turn it is, of the places that the run comes to."""
    there = {place for place, _ in stage.counts[start]} | {AT_ANY_TIME}
    places = [place for place in places if place in there]
    return places[turn % len(places)]


def _at(stage: Stage, generator: random.Random, start: str, place: str, whats: tuple[str, ...]) -> tuple[Moment, int]:
    """Return a moment of a place, drawn from all that the run has there."""
    there = [(place, what) for what in whats if stage.counts[start][place, what]]
    moment = generator.choices(there, [stage.counts[start][one] for one in there])[0]
    return moment, generator.randint(1, stage.counts[start][moment])


def _killed(stage: Stage, generator: random.Random, turn: int) -> Fault:
    places = [TRAINING, CHECKPOINT, DATABASE, AT_ANY_TIME, DISTILLATION, RESULT, FIGURE, DATA, AT_ANY_TIME]
    places += [ARTIFACT, PARTITION, AT_ANY_TIME, REPORT, SETTINGS]
    start = BEGUN if turn % 4 == 3 else FRESH
    place = _turn(stage, start, places, turn)
    if place == AT_ANY_TIME:
        return Fault(KILLED, "by the clock", start, None, 0, generator.uniform(0.05, 0.95) * stage.seconds[start])
    moment, number = _at(stage, generator, start, place, WHATS)
    way = generator.choice(["at once", "milliseconds later"])
    return Fault(KILLED, way, start, moment, number, 0 if way == "at once" else generator.randint(1, 12))


def _full(stage: Stage, generator: random.Random, turn: int) -> Fault:
    places = [CHECKPOINT, DATABASE, RESULT, FIGURE, ARTIFACT, REPORT, PARTITION, TRAINING]
    start = BEGUN if turn % 3 == 2 else FRESH
    place = _turn(stage, start, places, turn)
    moment, number = _at(stage, generator, start, place, ("write", "statement", "step"))
    way = generator.choice(["disk full", "limit of a file's size"]) if stage.small else "limit of a file's size"
    room = generator.choice([0, generator.randint(0, 4096), generator.randint(0, 200_000)])
    return Fault(FULL, way, start, moment, number, room)


def _away(stage: Stage, generator: random.Random, turn: int) -> Fault:
    places = [TRAINING, DATABASE, DATA, CHECKPOINT, DATABASE, RESULT, DISTILLATION, ARTIFACT]
    way = STORE_WAYS[turn % 5] if turn % 20 != 19 else STORE_WAYS[5]
    start = BEGUN if turn % 3 == 2 else FRESH
    moment, number = _at(stage, generator, start, _turn(stage, start, places, turn), WHATS)
    return Fault(AWAY, way, start, moment, number, generator.random())


def _unreadable(stage: Stage, generator: random.Random, turn: int) -> Fault:
    places = [CHECKPOINT, PARTITION, DATA, RESULT, SETTINGS, REPORT]
    place = _turn(stage, BEGUN, places, turn)
    start = BEGUN if place == CHECKPOINT else FRESH
    moment, number = _at(stage, generator, start, place, ("read",))
    if place == SETTINGS:
        moment, number = (SETTINGS, FROM_THE_START), generator.randint(0, 99)
    return Fault(UNREADABLE, generator.choice(["not allowed", "input/output error"]), start, moment, number, 0)


def _damaged(stage: Stage, generator: random.Random, turn: int) -> Fault:
    way = generator.choice(["cut short", "one bit flipped"])
    if turn % 4 < 2:
        start = BEGUN if turn % 4 else FINISHED
        way = FOREIGN if turn % 8 >= 4 else way
        return Fault(DAMAGED, way, start, (CHECKPOINT, BEFORE), 0, generator.random())
    if turn % 4 == 2:
        places = [place for place in (PARTITION, FIGURE, RESULT, REPORT) if stage.counts[FRESH][place, "write"]]
        return Fault(DAMAGED, way, FINISHED, (generator.choice(places), BEFORE_MISSING), 0, generator.random())
    moment, number = _at(stage, generator, FRESH, _turn(stage, FRESH, [PARTITION, RESULT], turn // 4), ("read",))
    return Fault(DAMAGED, way, FRESH, moment, number, generator.random())


def _worker(stage: Stage, generator: random.Random, turn: int) -> Fault:
    start = BEGUN if turn % 3 == 2 else FRESH
    moment, number = _at(stage, generator, start, CLIENTS, ("client",))
    way = "one" if turn % 4 else "every one, again and again"
    return Fault(WORKER, way, start, moment, number, generator.random())


def _memory(stage: Stage, generator: random.Random, turn: int) -> Fault:
    places = [TRAINING, DATA, DISTILLATION, CHECKPOINT, REPORT, PARTITION]
    start = BEGUN if turn % 3 == 2 else FRESH
    moment, number = _at(stage, generator, start, _turn(stage, start, places, turn), ("read", "write", "step"))
    return Fault(MEMORY, generator.choice(["Python's", "torch's"]), start, moment, number, 0)


def _terminal(stage: Stage, generator: random.Random, turn: int) -> Fault:
    places = [REPORT, DATA, TRAINING, RESULT, CHECKPOINT]
    start = BEGUN if turn % 3 == 2 else FRESH
    moment, number = _at(stage, generator, start, _turn(stage, start, places, turn), WHATS)
    return Fault(TERMINAL, TERMINAL_WAYS[turn % 3], start, moment, number, 0)


def _linked(stage: Stage, generator: random.Random, turn: int) -> Fault:
    start = BEGUN if turn % 3 == 2 else FINISHED
    places = [CHECKPOINT, PARTITION] if start == BEGUN else [REPORT, CHECKPOINT, RESULT, PARTITION]
    return Fault(LINK, "before the run", start, (places[turn % len(places)], BEFORE), 0, 0)
