# SPDX-License-Identifier: MIT
"""Fit the numbers of `busbar.expect.model` together to all measured readings, and write them.

    make fit

Each number has a normal prior of its group (as the shares of several kinds of links). Newton's
method finds the most likely numbers, and expectation maximization the spread of each group, of
systems among themselves (rate and latency) and of readings of one system (D. Bates et al., 2015,
describe such mixed models). Readings whose owners or authors find them low are left out.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from busbar import site as sites
from busbar.expect import COLLECTIVES, Question, model
from busbar.expect.bounds import NVLS
from busbar.expect.collective import ways_of
from busbar.expect.model import Fit, Way, group, scatter, slopes_of
from tests.expect.published import question_of, readings
from tests.expect.recorded_runs import DATA, nccl_json
from tests.expect.test_expect_collectives import P4DE, P5

LOW = {
    ("gh194-h100-pair", 1): "its owner wonders why it is low",
    ("oci-a100-40", 2): "a tutorial's cluster, 71 of 200 GB/s",
    ("gh1048-a100", 2): "its owner thinks it is low",
    ("gh1218-h100", 32): "its owner finds all_gather low",
}
"""Systems and nodes that are not healthy beyond doubt."""
VENDORS = {"inside vendor": 0.7, "between vendor": 0.8, "start vendor": 15, "step vendor": 2}
CENTERS = VENDORS | {"hop vendor": 10, "channel vendor": 20}
"""What is assumed before any reading, within a factor of e for times and of 1.3 for shares."""
FIXED = {n: 0.25 if n.startswith(("inside", "between", "channel")) else 1.0 for n in CENTERS}
FIXED |= {"scale nodes": 0.1}
START = {"system rate": 0.08, "system way": 0.05, "system time": 0.2}
OTHERS = 0.15
LEAST = 0.02
"""The least spread of a group, and of noise."""
ROW = re.compile(r"^ +(\d+) +\d+ +\w+ +\S+ +-?\d+ +[\d.]+ +[\d.]+ +([\d.]+) ", re.MULTILINE)
"""A row of nccl-tests: bytes and bus bandwidth out of place."""
RESIDUALS = DATA / "published/residuals.tsv"
ROUNDS = 12
STUDENT = 4
"""Degrees of freedom of the noise: a reading far off moves the numbers little."""


@dataclass(frozen=True)
class Row:
    """A reading and the ways that it may have gone; the site is the type of its system."""

    system: str
    site: str
    gpu: str
    ways: tuple[Way, ...]
    value: float


def rows() -> list[Row]:
    """Return all measured collectives: published ones and our own."""
    found = []
    for row in readings():
        if row.bench in COLLECTIVES and row.kind == "measured" and row.site:
            if (row.system, row.nodes) in LOW or "/" in row.site or row.partition:
                continue
            site, question = question_of(row)
            if ways := tuple(ways_of(site, question)):
                found.append(Row(row.system, row.site, row.gpu, ways, row.value))
    return [*found, *_own(), *_two_nodes()]


def _own() -> Iterator[Row]:
    for file in sorted(
        [
            *(DATA / "h200x4-prefix").glob("xccl_*.log"),
            *(DATA / "h200x2/nccl").glob("healthy_b_*.log.gz"),
        ]
    ):
        text = (
            gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        ).decode(errors="replace")
        bench = next(name for name in COLLECTIVES if name in file.name)
        ranks = 2 if "h200x2" in file.parts else 4
        for size, value in ROW.findall(text):
            yield _own_row(bench, ranks, int(size), float(value))
    for size, value in nccl_json("h200x4/nccl_all_reduce_single_process.json"):
        if size in {4**n for n in range(17)} and size >= 1024:
            yield _own_row("all_reduce", 4, size, value)


def _two_nodes() -> Iterator[Row]:
    """Yield the logs and tables of instances with EFA.

    Below 128 MiB the plugin of the p4d, aws-ofi-nccl 1.7.4, takes three times as long as others.
    """
    text = (DATA / "p4d-efa/all_reduce_2x8.log").read_text()
    p4d = [(int(size), float(value)) for size, value in ROW.findall(text)]
    tables = [("p4d", "reduce_scatter", [row for row in p4d if row[0] >= 1 << 27])]
    for name, mib in (("p4de", P4DE), ("p5", P5)):
        tables.append((name, "all_reduce", [(size << 20, value) for size, value in mib.items()]))
    for name, bench, points in tables:
        site = sites.load(name)
        for size, value in points:
            ways = tuple(ways_of(site, Question(bench=bench, nodes=2, nbytes=size)))
            assert site.node.gpus
            yield Row(f"own-{name}", name, site.node.gpus.model, ways, value)


def _own_row(bench: str, ranks: int, size: int, value: float) -> Row:
    question = Question(bench=bench, ranks=ranks, nbytes=size, algo="ring")
    ways = tuple(ways_of(sites.load("h200x4"), question))
    return Row(f"own-h200x{ranks}", "h200x4", "NVIDIA H200", ways, value)


def _names(row: Row, way: Way) -> dict[str, str]:
    """Return the names of a way's numbers in the model, by those in this fit."""
    return {f"{n} {row.system}" if n.startswith("system") else n: n for n in way.all_names}


def fit(data: list[Row], known: Fit | None = None) -> Fit:
    """Return the numbers that are most likely by the readings; ``known`` is where to begin."""
    names = sorted({name for row in data for way in row.ways for name in _names(row, way)})
    index = {name: at for at, name in enumerate(names)}
    groups = [group(name) for name in names]
    center = np.array([np.log(CENTERS[g]) if g in CENTERS else 0.0 for g in groups])
    all_groups = {*groups, *(known.spread if known else ())}
    spread = {g: FIXED.get(g, START.get(g, OTHERS)) for g in all_groups}
    values, noise = center.copy(), 0.05
    if known:
        values = np.array(
            [known.numbers.get(name, start) for name, start in zip(names, center, strict=True)]
        )
        spread |= {name: size for name, size in known.spread.items() if name in groups}
        noise = known.noise
    target = np.log([row.value for row in data])
    for turn in range(3, 6) if known else range(ROUNDS):
        prior = np.array([spread[g] ** -2 for g in groups])
        for _ in range(6 if turn < 3 else 2):
            jacobian, model_at, scale = _linear(data, index, values)
            rest = target - model_at
            far = rest / (noise * scale)
            weight = (STUDENT + 1) / (STUDENT + far**2) / (noise * scale) ** 2
            hessian = (jacobian.T * weight) @ jacobian + np.diag(prior)
            step = np.linalg.solve(
                hessian, jacobian.T @ (weight * rest) - prior * (values - center)
            )
            values = values + np.clip(step, -0.5, 0.5)
        covariance = np.linalg.inv(hessian)
        for name in spread:
            mine = [at for at, g in enumerate(groups) if g == name]
            if name not in FIXED and mine:
                size = np.mean(values[mine] ** 2 + np.diag(covariance)[mine])
                spread[name] = max(LEAST, float(size) ** 0.5)
        scaled = weight * noise**2  # robust, and less for small messages
        explained = np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian)
        noise = max(LEAST, float(np.mean(scaled * (rest**2 + explained))) ** 0.5)
    return _written(data, index, (values, covariance), spread, noise)


def _linear(
    data: list[Row], index: dict[str, int], values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return slopes, values and scatter of the fastest way of each row."""
    jacobian, at = np.zeros((len(data), len(index))), np.zeros(len(data))
    scale = np.ones(len(data))
    for number, row in enumerate(data):
        best = None
        for way in row.ways:
            known = {n: values[index[own]] for own, n in _names(row, way).items()}
            if best is None or way.busbw(known) > best[0]:
                best = way.busbw(known), way, known
        assert best
        at[number] = best[0]
        slopes = slopes_of(best[1], best[2])
        scale[number] = scatter(slopes)
        for own, name in _names(row, best[1]).items():
            jacobian[number, index[own]] = slopes[name]
    return jacobian, at, scale


def _written(
    data: list[Row],
    index: dict[str, int],
    solved: tuple[np.ndarray, np.ndarray],
    spread: dict[str, float],
    noise: float,
) -> Fit:
    values, covariance = solved
    shared = [name for name in index if not name.startswith("system")]
    systems: dict[str, set[str]] = defaultdict(set)
    for row in data:
        for way in row.ways:
            for name in (*way.all_names, *way.classes):
                systems[name].add(row.system)
    numbers = {name: float(values[index[name]]) for name in index}
    chosen: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in data:
        algos = {way.algo for way in row.ways}
        if len(algos) > 1 and NVLS not in algos:
            took = min(
                row.ways, key=lambda way: abs(_busbw(row, way, numbers) - np.log(row.value))
            )
            chosen[took.choice][took.algo].add(row.system)
    return Fit(
        numbers={name: float(values[index[name]]) for name in shared},
        covariance={(a, b): float(covariance[index[a], index[b]]) for a in shared for b in shared},
        spread=spread,
        noise=noise,
        systems={name: tuple(sorted(each)) for name, each in systems.items()},
        chosen={
            name: {algo: tuple(sorted(each)) for algo, each in took.items()}
            for name, took in sorted(chosen.items())
        },
        models=tuple(sorted({row.gpu for row in data})),
        readings=len(data),
    )


def _busbw(row: Row, way: Way, numbers: dict[str, float]) -> float:
    return way.busbw({own: numbers[name] for name, own in _names(row, way).items()})


def alike(found: Fit, data: list[Row]) -> str:
    """Say how far systems of one type differ from the model in the same direction: 0 not at all.

    Other systems of its type then say no more of a system than those with such links and NICs.
    """
    off: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in data:
        best = max(way.busbw(found.numbers) for way in row.ways)
        off[row.site, row.system].append(float(np.log(row.value)) - best)
    own = {key: sum(values) / len(values) for key, values in off.items()}
    pairs = [(own[a], own[b]) for a, b in combinations(sorted(own), 2) if a[0] == b[0]]
    share = sum(2 * a * b for a, b in pairs) / sum(a * a + b * b for a, b in pairs)
    return f"correlation {share:.2f} in {len(pairs)} pairs of systems of one type\n"


def document(found: Fit, data: list[Row]) -> dict[str, object]:
    """Return what ``fit.json`` has."""
    names = list(found.numbers)
    return {
        "numbers": {
            name: {
                "value": round(found.numbers[name], 4),
                "deviation": round(found.covariance[name, name] ** 0.5, 4),
                "systems": found.systems[name],
            }
            for name in names
        },
        "spread": {name: round(value, 4) for name, value in sorted(found.spread.items())},
        "noise": round(found.noise, 4),
        "classes": {n: s for n, s in sorted(found.systems.items()) if "," in n},
        "chosen": found.chosen,
        "models": found.models,
        "readings": found.readings,
        "covariance": [
            [float(f"{found.covariance[a, b]:.4g}") for b in names[: at + 1]]
            for at, a in enumerate(names)
        ],
    }


def residuals(found: Fit, data: list[Row]) -> Iterator[str]:
    """Yield the table of all readings beside the model."""
    yield "system\tcollective\talgo\tnodes\tper_node\tbytes\tvalue\tmodel\tresidual"
    for row in data:
        way = max(row.ways, key=lambda each: each.busbw(found.numbers))
        typical = float(np.exp(way.busbw(found.numbers)))
        yield "\t".join(
            (
                *(row.system, way.collective, way.algo, str(way.nodes), str(way.per_node)),
                *(str(way.nbytes), f"{row.value:g}", f"{typical:.4g}"),
                f"{row.value / typical - 1:+.2f}",
            )
        )


def main() -> None:
    """Fit all rows and write the numbers."""
    data = rows()
    found = fit(data)
    text = json.dumps(document(found, data), indent=1)
    text = re.sub(r"\[[^][{}]*\]", lambda m: " ".join(m[0].split()), text)
    Path(model.__file__).with_name("fit.json").write_text(text + "\n")
    RESIDUALS.write_text("".join(f"{line}\n" for line in residuals(found, data)))
    sys.stdout.write(
        f"{len(data)} readings, {len(found.numbers)} numbers, noise {found.noise:.3f}\n"
    )
    for name, value in sorted(found.spread.items()):
        sys.stdout.write(f"{name}: {value:.3f}\n")
    sys.stdout.write(alike(found, data))


if __name__ == "__main__":
    main()
