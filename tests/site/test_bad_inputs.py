# SPDX-License-Identifier: MIT
"""Bad files of each form: one clear error, exit status 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases import cases, some
from tests.said import Command, Said

from .edited import alone
from .saved import DATA, detect_text, inventory, text

SITE = [
    ("name: h200x4", "name: H200x4", "name: must have lower-case letters"),
    ("name: h200x4", "nane: h200x4", "nane: unknown key; did you mean 'name'?"),
    ("family: nvlink4", "family: nvlnk4", "family: no family 'nvlnk4'; did you mean 'nvlink4'?"),
    ("family: nvlink4", "family: 4", "family: must be text, got 4; write it in quotes"),
    ("family: nvlink4", "family:", "family: must be text, got nothing"),
    ("proof: run", "proof: runs", "proof: must be 'run', 'replay' or 'none', got 'runs'; did you"),
    ("scheduler: local", "scheduler: pbspr", "unknown scheduler 'pbspr'; did you mean 'pbspro'?"),
    ("scheduler: local", "scheduler: [local]", "scheduler: must be text, got a list"),
    ("launcher: mpirun", "launcher: slurm", "unknown launcher 'slurm'; did you mean 'srun'?"),
    ("launcher: mpirun", "launcher: mpirum", "unknown launcher 'mpirum'; did you mean 'mpirun'?"),
    ("node_type: h200x4", "node_type: h100x4", "unknown node type 'h100x4'; did you mean"),
    ("  - name: gpu", "  - name: GPU", "partitions[0].name: must have lower-case letters"),
    ("  - name: gpu", "  - name: GPU", "got 'GPU'; did you mean 'gpu'?"),
    ("memory_mib: 143771", "memory_mib: 141 GB", "got '141 GB'; write 144384 alone"),
    ("cores: 64", "cores: 0", "node_types.h200x4.cores: must be at least 1, got 0"),
    ("cores: 64", "cores: 6.5", "cores: must be a whole number, got 6.5"),
    (
        "vendor: nvidia",
        "vendor: nvida",
        "gpus.vendor: must be 'nvidia' or 'amd', got 'nvida'; did",
    ),
    ("arch: sm_90", "arch: sm90", "gpus.arch: must be an architecture such as sm_90"),
    ("count: 4\n", "count: -4\n", "gpus.count: must be at least 1, got -4"),
    ("count: 4\n", "count: 400\n", "gpus.count: must be at most 128, got 400"),
    ("count: 4\n", "cuont: 4\n", "gpus.cuont: unknown key; did you mean 'count'?"),
    ("multicast: false", "multicast: perhaps", "multicast: must be true or false, got 'perhaps'"),
    ("switched: {class: nvlink4, count: 18}", "{}", "links: write exactly one of switched"),
    ("cpus: 0-63", "cpus: 63-0", "numa[0].cpus: invalid range of CPUs '63-0'"),
    ("kind: wheels", "kind: wheel", "kind: must be 'wheels', 'spack', 'image', 'modules' or"),
    ("stack: cuda", "stack: cudda", "got 'cudda'; did you mean 'cuda'?"),
    ("features: [osu, xccl]", "features: [osu, xcl]", "features[1]: must be 'osu'"),
    ("runtime: apptainer", "runtime: aptainer", "did you mean 'apptainer'?"),
    ("gb_per_s: 365.1", "gb_per_s: fast", "references[0].gb_per_s: must be a number, got 'fast'"),
    ("pair: [0, 1]", "pair: [0, 1, 2]", "references[1].pair"),
    ("proof: run", "proof: run\n\tx: 1", "invalid YAML"),
    ("proof: run", "proof: run\nproof: none", "duplicate key 'proof'"),
]
LINKS = [
    ("raw_gb_per_s: 25", "raw_gb_per_s: 0", "raw_gb_per_s: must be more than 0, got 0"),
    ("raw_gb_per_s: 25", "raw_gb_per_s: -1", "must be more than 0"),
    ("raw_gb_per_s: 25", "raw_gb_per_s: quick", "must be a number, got 'quick'"),
    ("raw_gb_per_s: 25", "raw_gb_per_s: .inf", "must be a finite number"),
    ("raw_gb_per_s: 25", "raw_gbs: 25", "raw_gbs: unknown key; did you mean 'raw_gb_per_s'?"),
    ("raw_gb_per_s: 25", "x: 1", "wire.x: unknown key"),
    ("raw_gb_per_s: 25", "raw_gb_per_s: [25]", "must be a number, got a list"),
    ("raw_gb_per_s: 25", "raw_gb_per_s:", "must be a number, got nothing"),
    ("source: a test", "source: 1", "source: must be text, got 1"),
    ("source: a test", "sauce: a test", "sauce: unknown key; did you mean 'source'?"),
    ("source: a test", "source: [a]", "source: must be text, got a list"),
    ("forwards: false", "forwards: sometimes", "must be true or false, got 'sometimes'"),
    ("forwards: false", "forward: false", "did you mean 'forwards'?"),
    ("wire:", "Wire:", "must have lower-case letters"),
    ("wire:", "[a, b]:", "line"),
    ("  wire:", "  wire: 3\n  other:", "wire: must be a mapping (key: value), got 3"),
    (
        "link_classes:",
        "links_classes:",
        "links_classes: unknown key; did you mean 'link_classes'?",
    ),
    ("link_classes:", "- link_classes:", "must be a mapping of keys to values"),
    ("bench: osu_bw", "bench: osu_bv", "did you mean 'osu_bw'?"),
    ("bytes: [1, 2]", "bytes: [1]", "bytes"),
    ("bytes: [1, 2]", "bytes: 1", "bytes: must be a list, got 1"),
    ("share: 0.5", "share: 1.5", "share: must be at most 1, got 1.5"),
    ("low: 0.9", "low: 0", "low: must be more than 0, got 0"),
    ("high: 1.1", "high: 0.9", "high: must be at least 1, got 0.9"),
    ("proof: none", "proof: maybe", "proof: must be 'run', 'replay' or 'none', got 'maybe'"),
    ("readings: 1", "readings: many", "readings: must be a whole number, got 'many'"),
]
OWN_LINKS = """\
link_classes:
  wire:
    raw_gb_per_s: 25
    forwards: false
    source: a test
    bands:
      - {bench: osu_bw, bytes: [1, 2], latency_us: 0, share: 0.5, low: 0.9, high: 1.1,
         proof: none, readings: 1, fitted: [], source: another test}
"""
FAMILY = [
    ("family: own", "family: other", "the family is named 'other' but its file 'own'"),
    ("family: own", "famly: own", "famly: unknown key; did you mean 'family'?"),
    ("family: own", "family: 3", "family: must be text, got 3"),
    ("includes: [nvlink4]", "includes: [nvlink40]", "no family 'nvlink40'; did you mean"),
    ("includes: [nvlink4]", "includes: nvlink4", "includes: must be a list, got 'nvlink4'"),
    ("includes: [nvlink4]", "include: [nvlink4]", "did you mean 'includes'?"),
    ("description: a test", "", "description: missing key; add it"),
    ("description: a test", "description: [a]", "description: must be text, got a list"),
    ("name: A_B", "name: a b", "variables[0].name: must be the name of a variable"),
    ("name: A_B", "nam: A_B", "variables[0].nam: unknown key; did you mean 'name'?"),
    ('value: "1"', "value: 1", "variables[0].value: must be text, got 1; write it in quotes"),
    ('value: "1"', 'value: "a\\nb"', "which a job script would execute"),
    ("stacks: [cuda]", "stacks: [cudda]", "variables[0].stacks[0]: must be 'host'"),
    ("stacks: [cuda]", "stacks: cuda", "variables[0].stacks: must be a list, got 'cuda'"),
    ("buffers: any", "buffers: gpu", "buffers: must be 'device' or 'any', got 'gpu'"),
    ("reason: a test", "", "variables[0].reason: missing key"),
    ("source: a test", "sauce: a test", "variables[0].sauce: unknown key; did you mean 'source'?"),
    ("  - {rule: one", "    {rule: one", "launch_rules: must be a list, got a mapping"),
    ("rule: one", "rul: one", "launch_rules[0].rul: unknown key; did you mean 'rule'?"),
    ("nics: 4", "nics: 0", "instances.big.nics: must be at least 1, got 0"),
    ("nics: 4", "nics: four", "instances.big.nics: must be a whole number, got 'four'"),
    ("nics: 4", "nisc: 4", "instances.big.nisc: unknown key; did you mean 'nics'?"),
    ("site: {}", "site: 3", "site: must be a mapping (key: value), got 3"),
    ("site: {}", "site: {launcher: srun}", "launcher: unknown key"),
    ("site: {}", "site: {}\nsite: {}", "duplicate key 'site'"),
    ("site: {}", "site: {", "invalid YAML"),
    ("site: {}", "site: &a {b: *a}", "an alias refers to a node that contains it"),
]
OWN_FAMILY = """\
family: own
includes: [nvlink4]
description: a test
variables:
  - name: A_B
    value: "1"
    stacks: [cuda]
    buffers: any
    reason: a test
    source: a test
launch_rules:
  - {rule: one, reason: a test, source: a test}
instances:
  big: {nics: 4, source: a test}
site: {}
"""


def change(content: str, old: str, new: str) -> str:
    assert old in content
    return content.replace(old, new, 1)


def one_error(said: Said, message: str) -> None:
    lines = said.err.splitlines()
    hits = [line for line in lines if message in line]
    assert (said.status, bool(hits)) == (2, True), lines
    # A misspelt key is also missing; nothing else is wrong.
    assert all("missing key" in line for line in lines if line not in hits)
    assert re.match(r"busbar (site \w+|expect): \S+", hits[0])
    assert "; " in hits[0]  # what to do
    assert not re.search(r"Input should|pydantic|Traceback|internal error", said.err)


@cases("case", SITE)
def test_site(
    case: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busbar: Command
) -> None:
    old, new, message = case
    file = alone(tmp_path, "h200x4", monkeypatch) / "h200x4" / "site.yaml"
    file.write_text(change(file.read_text(), old, new))
    one_error(busbar("site show h200x4"), message)


@pytest.fixture
def mine(tmp_path: Path, busbar: Command) -> Path:
    """A site of one's own, with a directory of families."""
    assert busbar("site detect --like h200x4 --output", tmp_path / "mine").status == 0
    (tmp_path / "mine" / "_families").mkdir()
    return tmp_path / "mine"


def test_links(mine: Path, busbar: Command) -> None:
    @cases(("old", "new", "message"), LINKS)
    def each(old: str, new: str, message: str) -> None:
        (mine / "_families" / "links.yaml").write_text(change(OWN_LINKS, old, new))
        one_error(busbar("expect --bench osu_bw --site", mine), message)

    each()


def test_family(mine: Path, busbar: Command) -> None:
    site = mine / "site.yaml"
    site.write_text(change(site.read_text(), "family: nvlink4", "family: own"))

    @cases(("old", "new", "message"), FAMILY)
    def each(old: str, new: str, message: str) -> None:
        (mine / "_families" / "own.yaml").write_text(change(OWN_FAMILY, old, new))
        one_error(busbar("site show", mine), message)

    each()


TOOLS = {
    "nvidia-smi-q": inventory("NVIDIA H100 80GB HBM3", "Hopper", 81559, 8),
    "nvidia-smi-topo": text("h200x4/nvidia-smi-topo.log").split("Legend")[0],
    "nvidia-smi-nvlink": text("h200x4/nvlink.log"),
    "nvidia-smi-compute-cap": "compute_cap\n9.0\n",
    **{
        file.name: detect_text(file.name)
        for file in sorted((DATA / "detect").glob("*synthetic*"))
        if "nvidia-smi-q" not in file.name and "-h20-" not in file.name
    },
}


CUTS = {
    # Between two entries, nobody can tell: cut where the second one has begun.
    "NodeName=": "NodeName=cpu01",
    "power_state": "node002\n",
    "    ASIC:": "GPU: 2\n    ASIC:",
    "PARTITION": "gpu          up 1-00",
}


def cut(content: str) -> str:
    """In the middle of a word after half of the lines."""
    for sign, end in CUTS.items():
        if sign in content:
            return content.split(end, maxsplit=1)[0] + end
    lines = content.rstrip().splitlines(keepends=True)
    return "".join(lines[: max(1, len(lines) // 2) + 1]).rstrip()[:-2]


DAMAGES = {
    "cut": cut,
    "reversed": lambda content: "\n".join(line[::-1] for line in content.splitlines()),
    "empty": lambda _: "",
    "blank": lambda _: " \n\n\t\n",
    "binary": lambda _: "\x7fELF\x02\x01\x01" + "\x00" * 64,
    "of another tool": lambda _: "Filesystem 1K-blocks Used Available Use% Mounted on\n",
    "page of an error": lambda _: "<html><body>404 Not Found</body></html>\n",
    "message of an error": lambda content: f"bash: {content.split()[0]}: command not found\n",
}


@cases("tool", TOOLS)
def test_outputs_of_tools(tool: str, tmp_path: Path, busbar: Command) -> None:
    file = tmp_path / tool
    file.write_text(TOOLS[tool])
    assert busbar("site detect --from", file).status == 0
    for damage, spoil in some(DAMAGES.items(), 2):
        file.write_text(spoil(TOOLS[tool]))
        said = busbar("site detect --from", file)
        (line,) = said.err.splitlines()
        assert (said.status, line.startswith(f"busbar site detect: {file}: ")) == (2, True), damage
        assert "; " in line, damage
