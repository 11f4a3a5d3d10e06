# SPDX-License-Identifier: MIT
"""A PyG model before and after ``frontgi_pyg.accelerate``: same answers, less time, less memory.

    make demo        (or: python examples/demo.py)

On the graph of Debian's packages and their dependencies, a 2-layer GCN learns to tell a package's section from the
letters of its name and from the packages around it. It is trained by PyG, accelerated, and run both ways, in turn.
Everything is on the CPU; it takes about a minute on two cores. The picture goes to ``demo.png``.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN
from tqdm import tqdm

import frontgi_pyg
from frontgi_pyg.datasets import debian_packages

matplotlib.use("Agg")
logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it would tell of its font cache
from matplotlib import pyplot as plt  # noqa: E402

HIDDEN = 256
EPOCHS = 15
LEARNING_RATE = 0.03
TRAINING_SECONDS_MAX = 35
SAMPLES = 5
# Of the largest output: two layers, each a float32 sum of up to 21,841 neighbours in another order than PyG's, hence
# 2 * epsilon * sqrt(21841).
DIFFERENCE_MAX = 3.5e-5
PICTURE = Path("demo.png")


def main() -> None:
    """Runs the demo; fails if the two models disagree."""
    print("frontgi_pyg: a PyG model, accelerated on the CPU\n")
    data = debian_packages()
    width, classes = data.num_features, len(data.sections)
    print(
        f"The graph      Debian's {data.num_nodes:,} packages with {data.num_edges:,} dependencies.\n"
        f"The question   In which of {classes} sections is a package? Its features are {width:,} hashed\n"
        f"               n-grams of its name; the rest is learnt from its neighbours.\n"
        f"The model      GCN, {width} → {HIDDEN} → {classes}, on {torch.get_num_threads()} threads.\n"
    )
    torch.manual_seed(0)
    model = GCN(width, HIDDEN, num_layers=2, out_channels=classes, dropout=0.2)
    train(model, data, EPOCHS, TRAINING_SECONDS_MAX)

    print("\nfast = frontgi_pyg.accelerate(model)\n")
    fast = frontgi_pyg.accelerate(model)
    comparison = compare(model, fast, data, SAMPLES)
    report = frontgi_pyg.report(fast)
    print(report, end="\n\n")
    print(table(comparison))
    draw(comparison, PICTURE)
    print(f"\nA picture of it: {PICTURE.resolve()}")
    if comparison.difference > DIFFERENCE_MAX:
        sys.exit(f"The outputs differ by more than {DIFFERENCE_MAX:g} of the largest: please report this.")
    if any(conv.status != "native" for conv in report.convs):
        sys.exit("A layer took PyG's path: please report this.")


def train(model: torch.nn.Module, data: Data, epochs: int, seconds_max: float) -> None:
    """Trains with PyG alone, on the whole graph, for some epochs or until the time is up."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    model.train()
    start = time.perf_counter()
    bar = tqdm(range(epochs), desc="Training it with PyG", unit="epoch", file=sys.stdout)
    for _ in bar:
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        bar.set_postfix(loss=f"{loss.item():.2f}")
        if time.perf_counter() - start > seconds_max:
            bar.close()
            print(f"Stopped after {seconds_max:.0f} s: a slow or busy machine. It costs some accuracy.")
            break
    model.eval()


# ---- both models, in turn ------------------------------------------------------------------------


@dataclass
class Side:
    """What was measured of one model."""

    name: str
    accuracy: float
    first_seconds: float
    steady_seconds: float
    peak_bytes: int | None


@dataclass
class Comparison:
    """Both models on the same graph.

    Args:
        pyg: The model as it was.
        ours: The accelerated one.
        difference: Largest difference of two outputs, relative to the largest output.
        guessing: Test accuracy of always saying the commonest class.
    """

    pyg: Side
    ours: Side
    difference: float
    guessing: float


@torch.no_grad()
def compare(model: torch.nn.Module, fast: torch.nn.Module, data: Data, samples: int) -> Comparison:
    """Calls both models in turn, so that whatever else the machine does hits both alike.

    After the first round each timed call follows an unseen one, as in a program that calls its model again and again.
    """
    models = {"PyG": model, "frontgi_pyg": fast}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    peaks: dict[str, list[int]] = {name: [] for name in models}
    outputs: dict[str, Tensor] = {}
    bar = tqdm(total=2 * (1 + 2 * samples), desc="Running both in turn", unit="call", file=sys.stdout)
    for turn in range(1 + samples):
        for name, each in models.items():
            outputs.pop(name, None)
            if turn > 0:
                each(data.x, data.edge_index)
                bar.update()
            before = resident_bytes("VmRSS") if reset_peak() else None
            start = time.perf_counter()
            outputs[name] = each(data.x, data.edge_index)
            seconds[name].append(time.perf_counter() - start)
            if before is not None:
                peaks[name].append(resident_bytes("VmHWM") - before)
            bar.update()
    bar.close()
    print()

    def side(name: str) -> Side:
        right = outputs[name].argmax(dim=1) == data.y
        accuracy = right[data.test_mask].double().mean().item()
        first, *steady = seconds[name]
        return Side(name, accuracy, first, statistics.median(steady), max(peaks[name], default=None))

    pyg, ours = outputs.values()
    commonest = data.y[data.train_mask].bincount().argmax()
    return Comparison(
        side("PyG"),
        side("frontgi_pyg"),
        difference=((pyg - ours).abs().max() / pyg.abs().max()).item(),
        guessing=(data.y == commonest)[data.test_mask].double().mean().item(),
    )


def reset_peak() -> bool:
    """Makes the peak of this process's resident memory start anew; whether the system can do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def resident_bytes(key: str) -> int:
    """Returns ``VmRSS`` (now) or ``VmHWM`` (peak) of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) << 10
    raise OSError(f"no {key} in /proc/self/status")


# ---- what is shown -------------------------------------------------------------------------------


def table(comparison: Comparison) -> str:
    """Returns the comparison as text."""
    pyg, ours = comparison.pyg, comparison.ours

    def line(what: str, left: str, right: str, verdict: str = "") -> str:
        return f"{what:<22}{left:>10}{right:>14}   {verdict}".rstrip()

    def timing(what: str, left: float, right: float) -> str:
        return line(what, f"{left:.3f} s", f"{right:.3f} s", f"{left / right:.1f} times as fast")

    lines = [
        line("", pyg.name, ours.name),
        line("test accuracy", f"{pyg.accuracy:.1%}", f"{ours.accuracy:.1%}", f"guessing: {comparison.guessing:.1%}"),
        timing("first call", pyg.first_seconds, ours.first_seconds),
        timing("later calls, median", pyg.steady_seconds, ours.steady_seconds),
    ]
    if pyg.peak_bytes and ours.peak_bytes is not None:
        left, right = pyg.peak_bytes / 1e6, ours.peak_bytes / 1e6
        lines.append(line("peak memory of a call", f"{left:.0f} MB", f"{right:.0f} MB", f"{right / left:.0%} of PyG's"))
    else:
        lines.append("peak memory of a call: this system does not tell")
    lines.append(f"\nLargest difference of two outputs: {comparison.difference:.0e} of the largest output.")
    return "\n".join(lines)


def draw(comparison: Comparison, path: Path) -> None:
    """Writes the comparison as a picture: bars from zero."""
    pyg, ours = comparison.pyg, comparison.ours
    panels = [("Seconds a call (median)", pyg.steady_seconds, ours.steady_seconds, "{:.2f} s")]
    if pyg.peak_bytes and ours.peak_bytes is not None:
        panels.append(("Peak memory of a call", pyg.peak_bytes / 1e6, ours.peak_bytes / 1e6, "{:.0f} MB"))
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3.4), squeeze=False)
    for axis, (title, left, right, unit) in zip(axes[0], panels, strict=True):
        bars = axis.bar([pyg.name, ours.name], [left, right], width=0.6, color=["#b8b8b8", "#2166ac"])
        axis.bar_label(bars, [unit.format(left), unit.format(right)], padding=3)
        axis.set_title(title, fontsize=11)
        axis.set_ylim(0, 1.15 * max(left, right))
        axis.set_yticks([])  # the labels say it
        axis.tick_params(length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(f"2-layer GCN on Debian's packages, {torch.get_num_threads()} CPU threads", fontsize=12)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
