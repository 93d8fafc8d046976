"""FedAvg of one framework through its public interface; `race.py` starts it.

    PYTHON benchmarks/rivals.py NAME FOLDER

PYTHON has the framework, and NAME is a key of `WAYS`. `race.py` writes FOLDER: the clients' images, the network with
its initial weights, and the settings. Prints the time after each round, and the accuracy on the test images. Frameworks
whose batches come from the user get whole ones, which is faster than single images.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

PROCESSES, TESTED = 2, 1000  # processes, or threads of clients; images in a step of an evaluation


@dataclass(frozen=True)
class Work:
    """What each framework computes. It is also BlazeFL's model selector and partitioned dataset."""

    folder: str
    clients: int
    cohort: int  #: clients in a round
    epochs: int
    batch: int
    rate: float
    rounds: int  #: after the first, whose time counts as start-up
    always: bool  #: whether each round is evaluated, or only the last
    pfllib: str = ""  #: its checkout
    marks: list[float] = field(default_factory=list)  #: the times after rounds

    def select_model(self, _: Any = None) -> nn.Sequential:
        return torch.load(Path(self.folder, "network.pt"), weights_only=False)

    def stored(self, part: str, n: int) -> list[Tensor]:
        """Return images in uint8 and labels of a client, of ``train`` or ``test``."""
        return torch.load(Path(self.folder, f"{part}{n}.pt"))

    def data(self, part: str, n: int | None = None) -> list[Tensor]:
        """Return images, as numbers from -1 to 1, and labels of one client or all."""
        found = [self.stored(part, each) for each in (range(self.clients) if n is None else [n])]
        images, labels = map(torch.cat, zip(*found, strict=True))
        return [images / 127.5 - 1, labels]

    def get_dataloader(self, type_: str, cid: int | None, batch_size: Any = None, generator: Any = None) -> Any:
        data = TensorDataset(*self.data(type_, cid))
        order = SequentialSampler(data) if cid is None else RandomSampler(data, generator=generator)
        return DataLoader(data, None, sampler=BatchSampler(order, TESTED if cid is None else self.batch, False))

    def set_dataset(self, type_: str, cid: int | None, dataset: Any) -> None:
        """Keep nothing: the images do not change."""

    def mark(self, *_: Any) -> None:
        self.marks.append(time.time())


def ours(work: Work, memory_format: Any = "auto") -> float:
    from ktpfl_pipeline import methods
    from ktpfl_pipeline.core import engine, metrics, settings
    from ktpfl_pipeline.core.dataset import LabeledDataset
    from ktpfl_pipeline.core.federation import Federation
    from ktpfl_pipeline.core.setting import Client

    data = [[LabeledDataset(*work.stored(part, n)) for part in ("train", "test")] for n in range(work.clients)]
    made = tuple(Client(n, "race", own, own.take(torch.arange(0)), test) for n, (own, test) in enumerate(data))
    training = settings.LocalTraining(epochs=work.epochs, batch_size=work.batch, learning_rate=work.rate)
    processes = settings.ExecutorSettings(PROCESSES)
    compute = settings.Compute("cpu", executor=processes, memory_format=memory_format)
    public, total = made[0].train.inputs[:1], work.rounds + 1
    fed = Federation(made, public, 1, 10, work.select_model, training=training, compute=compute)
    schedule = engine.Schedule(total, work.cohort / work.clients, 1 if work.always else total)
    run = engine.run(methods.create("fedavg"), fed, schedule, observer=engine.Observer(round=work.mark))
    right = zip(run.history[-1].accuracy[metrics.AFTER_TRANSFER], (len(test) for _, test in data), strict=True)
    return sum(share * number for share, number in right) / sum(len(test) for _, test in data)


def pfllib(work: Work, evaluates: bool = True) -> float:
    import numpy as np
    from peers import defaults

    for part in ("train", "test"):
        (place := Path(work.folder, "dataset", "MNIST", part)).mkdir(parents=True, exist_ok=True)
        for n in range(work.clients):
            arrays: Any = dict(zip("xy", (each.numpy() for each in work.data(part, n)), strict=True))
            np.savez_compressed(place / f"{n}.npz", data=arrays)
    Path(work.folder, "system").mkdir(exist_ok=True)
    os.chdir(Path(work.folder, "system"))  # its paths are relative
    sys.modules["h5py"] = ModuleType("h5py")  # used only for results on disk
    sys.path.insert(0, str(Path(work.pfllib, "system")))
    from flcore.servers.serveravg import FedAvg
    from flcore.trainmodel.models import BaseHeadSplit, FedAvgCNN

    args, network = SimpleNamespace(**defaults(Path(work.pfllib))), FedAvgCNN()
    vars(args).update(device="cpu", batch_size=work.batch, local_learning_rate=work.rate, num_clients=work.clients)
    args.global_rounds = work.rounds  # its loop takes one more
    network.load_state_dict(dict(zip(network.state_dict(), work.select_model().state_dict().values(), strict=True)))
    head, network.fc = network.fc, nn.Identity()
    args.model = BaseHeadSplit(network, head)
    server = FedAvg(args, 0)
    server.save_results = server.save_global_model = lambda: None
    average = server.aggregate_parameters
    server.aggregate_parameters = lambda: work.mark(average())
    if not evaluates:
        server.evaluate = lambda: server.rs_test_acc.append(0.0)
    server.train()
    server.send_models()
    _, samples, correct, _ = server.test_metrics()
    return sum(correct) / sum(samples)


def blazefl(work: Work, trainer: str = "ProcessPool") -> float:
    from blazefl import contrib

    common: Any = {"model_selector": work, "model_name": "", "dataset": work, "device": "cpu", "seed": 0}
    common |= {"num_clients": work.clients, "batch_size": work.batch}
    share, states = work.cohort / work.clients, {"state_dir": Path(work.folder, str(time.time()))}
    handler = contrib.FedAvgBaseServerHandler(**common, global_round=work.rounds + 1, sample_ratio=share)
    common |= {"epochs": work.epochs, "lr": work.rate, "num_parallels": PROCESSES}
    common |= states if trainer == "ProcessPool" else {}
    clients = getattr(contrib, f"FedAvg{trainer}ClientTrainer")(**common)
    torch.optim.SGD(handler.model.parameters())  # imports torch's compiler, which every new process would do
    while not handler.if_stop():
        torch.set_num_threads(1)  # of each client
        clients.local_process(handler.downlink_package(), handler.sample_clients())
        for package in clients.uplink_package():
            handler.load(package)
        torch.set_num_threads(PROCESSES)
        found = handler.get_summary() if work.always or handler.if_stop() else {}
        work.mark()
    return float(found["server_acc"])


def flower(work: Work) -> float:
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server, found, model = ClientApp(), ServerApp(), [0.0], work.select_model()

    @client.train()
    def train(message: Any, context: Any) -> Any:
        torch.set_num_threads(1)
        model.train().load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), work.rate)
        data = work.get_dataloader("train", int(context.node_config["partition-id"]))
        for _ in range(work.epochs):
            for images, labels in data:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
        metrics = MetricRecord({"num-examples": len(data.dataset)})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    @torch.no_grad()
    def evaluate(t: int, arrays: Any) -> Any:  # once before the first round too
        if t > (0 if work.always else work.rounds):
            model.eval().load_state_dict(arrays.to_torch_state_dict())
            right = [model(x).argmax(1) == y for x, y in work.get_dataloader("test", None)]
            found[0] = float(torch.cat(right).double().mean())
        work.marks.extend([time.time()] * (t > 0))
        return MetricRecord({"accuracy": found[0]})

    @server.main()
    def main(grid: Any, context: Any) -> None:
        least = {"min_train_nodes": work.cohort, "min_available_nodes": work.clients}  # else it starts with fewer
        strategy = FedAvg(fraction_train=work.cohort / work.clients, fraction_evaluate=0.0, **least)
        strategy.start(grid, ArrayRecord(model.state_dict()), work.rounds + 1, evaluate_fn=evaluate)

    backend: Any = {"init_args": {"num_cpus": PROCESSES}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, work.clients, backend_config=backend)
    return found[0]


def pfl(work: Work) -> float:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.central_evaluation import CentralEvaluationCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    class Network(nn.Sequential):
        def loss(self, x: Tensor, y: Tensor) -> Tensor:
            return nn.functional.cross_entropy(self.train()(x), y)

        @torch.no_grad()
        def metrics(self, x: Tensor, y: Tensor) -> Any:
            return {"accuracy": Weighted(int((self.eval()(x).argmax(1) == y).sum()), len(y))}

    class Evaluation(CentralEvaluationCallback):
        def after_central_iteration(self, *given: Any, **named: Any) -> Any:
            result = super().after_central_iteration(*given, **named)
            found.extend(each.overall_value for name, each in result[1] if "accuracy" in str(name))
            work.mark()
            return result

    found: list[float] = []
    total, network, tested = work.rounds + 1, Network(*work.select_model()), NNEvalHyperParams(TESTED)
    clients = [tuple(work.data("train", n)) for n in range(work.clients)]
    FederatedAveraging().run(
        NNAlgorithmParams(total, total, work.cohort, 0),
        SimulatedBackend(
            FederatedDataset.from_slices(clients, cycle(range(work.clients)).__next__), None, [WeightByDatapoints()]
        ),
        PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0)),
        NNTrainHyperParams(work.batch, work.epochs, work.rate),
        tested,
        [Evaluation(Dataset(work.data("test")), tested, 1 if work.always else work.rounds)],
    )
    return found[-1]


WAYS: dict[str, Callable[[Work], float]] = {
    "pfllib": pfllib,
    "pfllib without evaluation": lambda work: pfllib(work, False),
    "blazefl": blazefl,
    "blazefl-threads": lambda work: blazefl(work, "ThreadPool"),
    "flower": flower,
    "pfl": pfl,
    "ours": ours,
    "ours, contiguous": lambda work: ours(work, "contiguous"),
}

if __name__ == "__main__":
    work = Work(sys.argv[2], **json.loads(Path(sys.argv[2], "work.json").read_text()))
    reached = WAYS[sys.argv[1]](work)
    if os.environ.get("RANK", "0") == "0":  # the first of pfl's processes
        print("\n" + json.dumps({"accuracy": reached, "marks": work.marks}))
