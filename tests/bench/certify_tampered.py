# SPDX-License-Identifier: MIT
"""Change records in many ways, and see that each is refused and the file is named.

``python -m tests.bench.certify_tampered [--tampered N] [--untouched N] [--nodes N] [--seed S]``
changes a signed record of four nodes, of which one was repaired, N times: a bit of any file, two
logs swapped, a clause removed, a reading edited, results of another machine or day; all but the
first also with new checksums below the old signature. It verifies untouched records, each of
another fleet, and writes and verifies the record of so many simulated nodes. It prints what was
not as it should be, and the CPU time and memory of the large record; the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from busbar.boundary import read_text
from busbar.certify import contract as contracts, record as records
from busbar.certify.ledger import Ledger
from busbar.certify.verify import verify
from busbar.document import load
from busbar.errors import BusbarError
from busbar.seal import refuse_changed, sealed
from busbar.terminal import stdout
from tests.certify.records import FakeFleet

MOST_CPU_S, MOST_GIB = 60.0, 1.0


def signing_key(directory: Path) -> Path:
    """Return a new key of OpenSSH."""
    key = directory / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return key


def repaired_record(directory: Path, key: Path, slow: str = "n2") -> Path:
    """Return a signed record of four nodes, of which one was slow and was repaired."""
    fleet = FakeFleet(directory, slow={slow})
    fleet.certify()
    fleet.slow = set()
    fleet.certify(slow)
    (fleet.record / ".lock").touch()  # busbar certify run leaves it
    records.sign(fleet.record, key)
    return fleet.record


def resealed(directory: Path) -> None:
    """Give each changed document of a record a new checksum, as whoever forges it would."""
    for file in directory.glob("runs/**/*.json"):
        with suppress(ValueError, OSError):
            document = load(read_text(file))
            try:
                refuse_changed(document)
            except ValueError:
                file.write_text(json.dumps(sealed(document)))


def rewritten(directory: Path) -> None:
    """Give a changed record and its documents new checksums."""
    resealed(directory)
    file = directory / records.RECORD
    document = json.loads(file.read_text())
    document["subject"] = [vars(each) for each in records.subjects(directory)]
    file.write_text(json.dumps(document, indent=1) + "\n")


class Tamperer:
    """Changes a copy of a record, and makes it whole again."""

    def __init__(self, original: Path, other: Path, copy: Path, chance: random.Random) -> None:
        self.original, self.other, self.copy, self.chance = original, other, copy, chance
        shutil.copytree(original, copy)
        every = sorted(path.relative_to(original) for path in original.rglob("*"))
        self.files = [name for name in every if (original / name).stat().st_size]
        self.files = [name for name in self.files if (original / name).is_file()]
        self.logs = [name for name in self.files if name.name == "rfm_job.out"]
        self.kinds: dict[str, Callable[[], set[Path]]] = {
            "a bit of a file": self.flip,
            "two logs swapped": self.swap,
            "a clause removed": self.remove_clause,
            "a reading edited": self.edit_reading,
            "results of another machine or day": self.graft,
        }

    def trial(self) -> tuple[str, str]:
        """Change the copy once: how, and what is wrong with the answer; empty for nothing."""
        kind = self.chance.choice([*self.kinds])
        changed = self.kinds[kind]()
        named = {str(name) for name in changed}
        if kind != "a bit of a file" and self.chance.random() < 0.5:
            kind += ", with new checksums"
            rewritten(self.copy)
            changed.add(Path(records.RECORD))
            named |= {f"{records.RECORD}.sig"}
        try:
            found = verify(self.copy)
            wrong = "accepted" if found.supported else " ".join(found.problems)
        except BusbarError as error:
            wrong = str(error)
        for name in changed:
            shutil.copyfile(self.original / name, self.copy / name)
        if wrong != "accepted" and any(name in wrong for name in named):
            wrong = ""
        return kind, f"{sorted(named)}: {wrong}" if wrong else ""

    def flip(self) -> set[Path]:
        name = self.chance.choice(self.files)
        content = bytearray((self.original / name).read_bytes())
        content[self.chance.randrange(len(content))] ^= 1 << self.chance.randrange(8)
        (self.copy / name).write_bytes(content)
        return {name}

    def swap(self) -> set[Path]:
        """Swap two logs that differ."""
        while True:
            one, two = (self.original / name for name in self.chance.sample(self.logs, 2))
            if one.read_bytes() != two.read_bytes():
                break
        for source, target in ((one, two), (two, one)):
            shutil.copyfile(source, self.copy / target.relative_to(self.original))
        return {one.relative_to(self.original), two.relative_to(self.original)}

    def remove_clause(self) -> set[Path]:
        name = Path(records.CONTRACT)
        head, *clauses = (self.original / name).read_text().split("  - require: ")
        del clauses[self.chance.randrange(len(clauses))]
        (self.copy / name).write_text("  - require: ".join([head, *clauses]))
        return {name}

    def edit_reading(self) -> set[Path]:
        """Change a rate by one part in ten to ten, in the results of a job, a run or both."""
        log = self.chance.choice(self.logs).parent
        run = self.original / Path(*log.parts[:3])
        names = [log / "results.json", run.relative_to(self.original) / "results.json"]
        names = self.chance.choice([names, names[:1], names[1:]])
        rows = json.loads((self.original / log / "results.json").read_text())["results"]
        rate = next(row for row in rows if row["gb_per_s"])
        old = f'"gb_per_s": {rate["gb_per_s"]}'
        new = f'"gb_per_s": {rate["gb_per_s"] * self.chance.choice([0.5, 0.9, 1.1, 10])}'
        for name in names:
            text = (self.original / name).read_text()
            (self.copy / name).write_text(text.replace(old, new))
        return {*names}

    def graft(self) -> set[Path]:
        """Take files of a run from another record."""
        while True:
            name = self.chance.choice(self.files)
            if name.parts[0] != "runs" or not (self.other / name).is_file():
                continue
            if (self.other / name).read_bytes() != (self.original / name).read_bytes():
                shutil.copyfile(self.other / name, self.copy / name)
                return {name}


def tampered(directory: Path, key: Path, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield kind and fault of so many changed records."""
    original = repaired_record(directory / "original", key)
    time.sleep(1.1)  # documents have seconds
    other = repaired_record(directory / "other", key, "n1")
    chance = random.Random(seed)  # noqa: S311 - a seeded choice
    changed = Tamperer(original, other, directory / "copy", chance)
    for _ in range(count):
        yield changed.trial()
    if not verify(changed.copy).supported:
        yield "the copy", "was not made whole again"


def untouched(directory: Path, key: Path, count: int, seed: int) -> Iterator[str]:
    """Yield what is wrong with records that nobody changed."""
    chance = random.Random(seed)  # noqa: S311 - a seeded choice
    for number in range(count):
        place = directory / str(number)
        fleet = FakeFleet(place, count=chance.randrange(2, 9))
        setattr(fleet, chance.choice(["slow", "failing", "accused"]), {chance.choice(fleet.nodes)})
        fleet.certify()
        if chance.random() < 0.5:
            fleet.slow = fleet.failing = fleet.accused = set()
            fleet.certify(*fleet.nodes)
        records.sign(fleet.record, key)
        if not (found := verify(fleet.record)).supported:
            yield f"{number}: {found.sentence}"
        shutil.rmtree(place)


def large(directory: Path, key: Path, nodes: int) -> Iterator[str]:
    """Write and verify the record of many nodes; yield what takes too much."""
    fleet = FakeFleet(directory, count=nodes, slow={"n7"})
    fleet.certify()
    before = time.process_time()
    contract = contracts.read(fleet.contract_file)
    found = records.acceptance(contract, "fleet", Ledger.load(fleet.record, contract))
    records.write(fleet.record, found)
    records.sign(fleet.record, key)
    wrote = time.process_time() - before
    if not (verified := verify(fleet.record)).supported:
        yield verified.sentence
    verify_s = time.process_time() - before - wrote
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    size = sum(path.stat().st_size for path in fleet.record.rglob("*")) / 2**20
    text = f"{nodes} nodes, {size:.0f} MiB: written in {wrote:.1f} s, verified in {verify_s:.1f} s"
    stdout().line(f"{text}, {gib:.2f} GiB with what simulates them")
    if wrote + verify_s > MOST_CPU_S or gib > MOST_GIB:
        yield "too slow, or too large"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tampered", type=int, default=10_000)
    parser.add_argument("--untouched", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        key = signing_key(place)
        if args.nodes:
            wrong += large(place / "large", key, args.nodes)
            shutil.rmtree(place / "large")
        counts: Counter[str] = Counter()
        for kind, fault in tampered(place, key, args.tampered, args.seed):
            counts[kind] += 1
            wrong += [f"{kind}: {fault}"] * bool(fault)
        for kind, count in sorted(counts.items()):
            stdout().line(f"{count} {kind}")
        wrong += untouched(place / "untouched", key, args.untouched, args.seed)
        stdout().line(f"{args.untouched} untouched")
    for text in wrong[:20]:
        stdout().line(text[:300])
    stdout().line(f"{len(wrong)} were not as they should be")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
