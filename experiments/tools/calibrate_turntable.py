"""How hard the set is: errors on the unseen instances of a linear classifier, and of a small CNN.

``python -m experiments.tools.calibrate_turntable`` prints both. The set is meant to keep the first above 35 % and to
let the second come under 10 % within two minutes on two cores.
"""

import time
from pathlib import Path

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from torchcaps import create_model
from torchcaps.data.turntable.load import DEFAULT_PAIRS, load_turntable
from torchcaps.data.types import ImageSet, Split

PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def small(split: Split) -> Tensor:
    """Images at half size, each with zero mean and unit deviation: ``[N, 1, 48, 48]``."""
    images = F.avg_pool2d(split.images.float(), 2)
    mean, deviation = images.mean((1, 2, 3), keepdim=True), images.std((1, 2, 3), keepdim=True)
    return (images - mean) / (deviation + 1e-3)


def error(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(1) != labels).float().mean())


def linear_errors(data: ImageSet) -> dict[float, tuple[float, float]]:
    """Errors (training, test) of logistic regression on pixels, for each weight of its L2 penalty."""
    train, test = small(data.train).flatten(1), small(data.test).flatten(1)  # [N, 2304]
    mean, deviation = train.mean(0), train.std(0) + 1e-3
    train, test = (train - mean) / deviation, (test - mean) / deviation
    errors = {}
    for penalty in PENALTIES:
        weight = torch.zeros(len(data.classes), train.shape[1], requires_grad=True)
        bias = torch.zeros(len(data.classes), requires_grad=True)
        solver = torch.optim.LBFGS([weight, bias], max_iter=300, line_search_fn="strong_wolfe")

        def loss(weight: Tensor = weight, bias: Tensor = bias, penalty: float = penalty) -> Tensor:
            weight.grad = bias.grad = None
            fit = F.cross_entropy(train @ weight.T + bias, data.train.labels)
            total: Tensor = fit + penalty / 2 * weight.square().sum()
            total.backward()  # type: ignore[no-untyped-call]
            return total

        solver.step(loss)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            scores = [error(x @ weight.T + bias, s.labels) for x, s in ((train, data.train), (test, data.test))]
        errors[penalty] = (scores[0], scores[1])
    return errors


def cnn_error(data: ImageSet, cpu_seconds: float, seed: int = 0) -> tuple[float, int]:
    """Test error of ``cnn32`` after training for some seconds of processor time, and for how many epochs that was."""
    torch.manual_seed(seed)
    model = create_model("cnn32", classes=len(data.classes), conv_init="torch")
    solver = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    train, test = small(data.train), small(data.test)
    begin, epochs = time.process_time(), 0
    while (spent := (time.process_time() - begin) / cpu_seconds) < 1:
        for batch in torch.split(torch.randperm(len(train)), 50):
            for group in solver.param_groups:
                group["lr"] = 1e-3 * max(1 - spent, 0.02)
            y, x = torch.randint(0, 17, (2,)).tolist()
            loss = F.cross_entropy(model(train[batch, :, y : y + 32, x : x + 32]).logits, data.train.labels[batch])
            solver.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            solver.step()
        epochs += 1
    with torch.no_grad():
        logits = torch.cat([model(part).logits for part in torch.split(test[:, :, 8:40, 8:40], 500)])
    return error(logits, data.test.labels), epochs


def main(
    folder: Path | None = None,
    pairs: int = DEFAULT_PAIRS,
    seed: int = 0,
    cpu_seconds: float = 240,
    threads: int = 2,
) -> None:
    """Print how hard the set is for a linear classifier and for a small CNN.

    Args:
        folder: Where the rendered pictures are kept.
        pairs: Stereo pairs for training, and as many for test.
        seed: Of the pictures.
        cpu_seconds: Processor time for training the CNN: two minutes of two cores.
        threads: Of torch.
    """
    torch.set_num_threads(threads)
    data = load_turntable(folder, pairs=pairs, seed=seed)
    for penalty, (train, test) in linear_errors(data).items():
        print(f"linear, penalty {penalty:<6}: {train:6.1%} error in training, {test:6.1%} on unseen instances")
    test, epochs = cnn_error(data, cpu_seconds)
    print(f"cnn32, {cpu_seconds:.0f} s of processor time, {epochs} epochs: {test:6.1%} on unseen instances")


if __name__ == "__main__":
    tyro.cli(main)
