"""The injected faults of real clients, and the expected outcome of each; see `client_fault_acts`."""

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from unittest.mock import patch

import torch
from client_fault_acts import (
    all_gone,
    answers,
    beside,
    cut,
    filled,
    flip,
    full,
    full_at_client,
    full_at_end,
    harmed,
    joins,
    joins_at_start,
    killed,
    nan,
    other_classes,
    other_samples,
    other_version,
    server_harmed,
    server_killed,
    server_killed_writing,
    tensor,
    value,
    with_model,
    without_model,
)
from client_faults import Fault, Outcome, undergo

from ktpfl_flower.wire import Packet

OUT_IN_2 = {2: [1]}
UNSOUND = "sent an invalid reply to"
KILLED = "node unavailable"
BEYOND = "beyond the bound of"
HUGE = 3.4e38  # the largest float32 is 3.403e38
FAULTS = [
    Fault("client killed before local training", "kt_pfl", killed("before", "train", 2), KILLED, OUT_IN_2),
    Fault("client killed as it writes its trained model", "kt_pfl", killed("during", "train", 2), KILLED, OUT_IN_2),
    Fault("client killed when it has trained", "kt_pfl", killed("after", "train", 2), KILLED, OUT_IN_2),
    Fault("client killed in round 1", "kt_pfl", killed("after", "train", 1), KILLED, {1: [1]}),
    Fault("client killed before it predicts", "kt_pfl", killed("before", "logits", 2), KILLED, OUT_IN_2),
    Fault("client killed when it has predicted", "fedmd", killed("after", "logits", 2), KILLED, OUT_IN_2),
    Fault("client killed as it writes its distilled model", "kt_pfl", killed("during", "distill", 2), KILLED, OUT_IN_2),
    Fault("client killed when it has distilled", "kt_pfl", killed("after", "distill", 2), KILLED, OUT_IN_2),
    Fault("client killed before its model is evaluated", "kt_pfl", killed("before", "evaluate", 4), KILLED),
    Fault(
        "client killed as it writes its model", "fedproto", killed("during", "train_to_prototypes", 2), KILLED, OUT_IN_2
    ),
    Fault("client killed before it sends prototypes", "fedproto", killed("before", "class_means", 2), KILLED, OUT_IN_2),
    Fault("client killed when it has trained", "fedavg", killed("after", "train", 2), KILLED, OUT_IN_2),
    Fault("client killed before the common model is evaluated", "fedavg", killed("before", "evaluate", 4), KILLED),
    Fault("client killed when it has predicted", "feddf", killed("after", "logits", 2), KILLED, OUT_IN_2),
    Fault(
        "client killed and not restarted",
        "fedavg",
        killed("before", "train", 2, 10**9),
        "Start these clients",
        OUT_IN_2,
        ends=True,
    ),
    Fault("two of three clients killed", "kt_pfl", all_gone, "quorum requires 2", ends=True),
    Fault(
        "server killed before all clients have registered", "kt_pfl", server_killed("before", "register", 1), ends=True
    ),
    Fault("server killed as it starts the run", "kt_pfl", server_killed("after", "begin", 1), ends=True),
    Fault("server killed in round 1", "kt_pfl", server_killed("after", "train", 1), ends=True),
    Fault("server killed in local training", "kt_pfl", server_killed("before", "train", 2), ends=True),
    Fault("server killed when predictions come", "fedmd", server_killed("after", "logits", 2), ends=True),
    Fault("server killed when models are distilled", "kt_pfl", server_killed("after", "distill", 2), ends=True),
    Fault("server killed in an evaluation", "fedproto", server_killed("after", "evaluate", 3), ends=True),
    Fault("server killed when models come", "fedavg", server_killed("after", "train", 2), ends=True),
    Fault("server killed when models are fused", "feddf", server_killed("before", "evaluate", 4), ends=True),
    Fault("server killed before a checkpoint", "kt_pfl", server_killed_writing("checkpoint.pt", 2), ends=True),
    Fault("server killed after a checkpoint", "kt_pfl", server_killed_writing("told", 1), ends=True),
    Fault("server killed at the end", "kt_pfl", server_killed("after", "end", 1), ends=True),
    Fault("predictions of fewer samples", "kt_pfl", answers("logits", 2, tensor(lambda z: z[1:])), UNSOUND, OUT_IN_2),
    Fault(
        "predictions of far too many",
        "kt_pfl",
        answers("logits", 2, tensor(lambda z: z.repeat(500, 1))),
        UNSOUND,
        OUT_IN_2,
    ),
    Fault("predictions that are NaN", "kt_pfl", answers("logits", 2, tensor(nan)), "not finite", OUT_IN_2),
    Fault("prototypes that are NaN", "fedproto", answers("class_means", 2, tensor(nan)), "not finite", OUT_IN_2),
    Fault("a model that is NaN", "fedavg", answers("train", 2, tensor(nan)), "NaN or infinite", OUT_IN_2),
    Fault("a model of other shapes", "fedavg", answers("train", 2, tensor(lambda w: w[:1])), UNSOUND, OUT_IN_2),
    *(
        Fault(f"{what} of 3.4e38 in round 1", method, answers(operation, 1, filled(HUGE)), BEYOND, {1: [1]})
        for method, operation, what in (
            *(("kt_pfl", "logits", "predictions"), ("fedmd", "logits", "predictions")),
            *(("fedproto", "class_means", "prototypes"), ("fedavg", "train", "a model")),
            *(("feddf", "train", "a model"), ("feddf", "logits", "predictions")),
            *(("kt_pfl_joint", "train", "a model"), ("kt_pfl_joint", "logits", "predictions")),
        )
    ),
    Fault("a distilled model of 3.4e38", "kt_pfl_joint", answers("distill", 2, filled(-HUGE)), BEYOND, OUT_IN_2),
    Fault("a model 1,000 times as large", "fedavg", answers("train", 2, tensor(lambda w: 1e3 * w)), BEYOND, OUT_IN_2),
    Fault(
        "a model with far too large predictions",
        "fedavg",
        answers("train", 2, tensor(lambda w: 20 * w)),
        BEYOND,
        OUT_IN_2,
    ),
    Fault("prototypes of 5,000", "fedproto", answers("class_means", 2, filled(5e3)), BEYOND, OUT_IN_2),
    Fault("a loss of 1e300", "kt_pfl", answers("train", 1, beside(loss=1e300)), UNSOUND, {1: [1]}),
    Fault("measures of 3.4e38", "fedavg", answers("evaluate", 4, filled(HUGE)), UNSOUND),
    Fault("an accuracy of 200 %", "kt_pfl", answers("evaluate", 4, tensor(lambda x: x + 1)), UNSOUND),
    Fault("code instead of a value", "fedmd", answers("logits", 2, value({"code": "import os"})), UNSOUND, OUT_IN_2),
    Fault("a loss in words", "kt_pfl", answers("train", 2, beside(loss="low")), UNSOUND, OUT_IN_2),
    Fault("a training without a loss", "kt_pfl", answers("train", 2, beside(loss=None)), UNSOUND, OUT_IN_2),
    Fault(
        "a training that does not state whether it diverged",
        "kt_pfl",
        answers("train", 2, beside(finite=None)),
        UNSOUND,
        OUT_IN_2,
    ),
    Fault(
        "a model that is NaN, without a statement whether it diverged",
        "fedavg",
        answers("train", 1, lambda a: beside(finite=None)(tensor(nan)(a))),
        UNSOUND,
        {1: [1]},
    ),
    Fault("the number of a model without the model", "fedavg", answers("train", 2, without_model), UNSOUND, OUT_IN_2),
    Fault("a model that the method does not exchange", "kt_pfl", answers("train", 2, with_model), UNSOUND, OUT_IN_2),
    Fault("predictions with a loss", "kt_pfl", answers("logits", 2, beside(loss=0.5)), UNSOUND, OUT_IN_2),
    Fault("no value", "kt_pfl", answers("distill", 2, lambda a: Packet({})), UNSOUND, OUT_IN_2),
    Fault(
        "garbage, with on_unsound: stop",
        "kt_pfl",
        answers("logits", 2, tensor(torch.Tensor.long)),
        UNSOUND,
        ends=True,
        beside={"on_unsound": "stop"},
    ),
    Fault(
        "a refusal",
        "kt_pfl",
        answers("train", 2, beside(refused="it asks for rm, and a client offers train.")),
        "refused the request for local training",
        OUT_IN_2,
    ),
    Fault("a reply that comes too late", "kt_pfl", answers("train", 2, lambda a: None), "replied too late", OUT_IN_2),
    Fault("a reply that comes too late", "fedavg", answers("train", 1, lambda a: None), "replied too late", {1: [1]}),
    Fault(
        "a distilled model that comes too late",
        "kt_pfl",
        answers("distill", 2, lambda a: None),
        "replied too late",
        OUT_IN_2,
    ),
    Fault("another version of torch at the start", "kt_pfl", other_version(1), "install the server's versions"),
    Fault(
        "another version of torch after a restart",
        "kt_pfl",
        other_version(2),
        "install the server's versions",
        OUT_IN_2,
    ),
    Fault("other samples after a restart", "kt_pfl", other_samples, "has changed since", OUT_IN_2),
    Fault("two clients with the same number at the start", "kt_pfl", joins_at_start, "has the same number", ends=True),
    Fault("a second client with the same number", "kt_pfl", joins("train", 2), "has the same number"),
    *(
        Fault(f"{what} in the only evaluation", method, inject, says, beside={"evaluate_every": 2})
        for method, what, inject, says in (
            ("kt_pfl", "measures that are NaN", answers("evaluate", 1, tensor(nan)), UNSOUND),
            ("fedavg", "measures of another type", answers("evaluate", 2, value("good")), UNSOUND),
            ("fedmd", "no reply", answers("evaluate", 1, lambda a: None), "their last values, if any, are used"),
            (
                "kt_pfl",
                "a divergence that is claimed",
                answers("evaluate", 1, beside(diverged="nan")),
                "diverged in the evaluation",
            ),
            (
                "fedavg_ft",
                "a refusal",
                answers("evaluate", 2, beside(refused="I will not.")),
                "refused the request for an evaluation",
            ),
            ("fedproto", "client killed", killed("before", "evaluate", 1), KILLED),
        )
    ),
    Fault(
        "a divergence that is claimed in fine-tuning",
        "fedavg_ft",
        answers("train", 4, beside(diverged="nan")),
        "diverged in the evaluation",
    ),
    Fault(
        "class names that do not fit at the start",
        "kt_pfl",
        other_classes,
        "uses label 1 for 'malignant'",
        ends=True,
    ),
    Fault("a client that is not awaited", "fedavg", joins("train", 2, client=7), "does not belong to this run"),
    Fault("client's disk full", "kt_pfl", full_at_client, "free some space", OUT_IN_2),
    Fault("client's disk full at the end", "kt_pfl", full_at_end, "free some space", ends=True),
    Fault(
        "client's stored models deleted",
        "kt_pfl",
        harmed("*", shutil.rmtree),
        "continues like a new client",
        same=False,
    ),
    Fault(
        "client's stored models truncated",
        "kt_pfl",
        harmed("*/[0-9]*.pt", cut),
        "continues like a new client",
        same=False,
    ),
    Fault(
        "a byte of a stored model changed",
        "kt_pfl",
        harmed("*/[0-9]*.pt", flip),
        "continues like a new client",
        same=False,
    ),
    Fault("the run's settings at the client truncated", "fedavg", harmed("*/told.pt", cut), KILLED, OUT_IN_2),
    Fault("server's checkpoint truncated", "kt_pfl", server_harmed("checkpoint.pt", cut), "delete it", ends=True),
    Fault(
        "a byte of the server's list of clients changed",
        "kt_pfl",
        server_harmed("clients.pt", flip),
        "delete it",
        ends=True,
    ),
    Fault(
        "server's disk full",
        "kt_pfl",
        lambda stage: stage.files_hit.update({("checkpoint.pt", 2): full}),
        "free some space",
        ends=True,
    ),
]


@cache
def outcome(place: int) -> Outcome:
    """Return the outcome of a run with the fault at this position of the table."""
    with tempfile.TemporaryDirectory() as folder, patch.object(os, "fsync"):
        found = undergo(FAULTS[place], Path(folder))
        found.said = [line.replace(folder, "/federation") for line in found.said]
    return found
