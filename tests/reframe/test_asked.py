# SPDX-License-Identifier: MIT
"""What each check of benchmarks asks of its launches, against a golden table.

The mutation tests of `test_minimum.py` show that an assertion notices a fault in a launch that
asks for it; this one shows that the checks do ask. ``GOLDEN=write`` writes the tables again.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from busbar.data import CHECKS

from .dry import ROOT, reframe

pytestmark = pytest.mark.run

GOLDEN = ROOT / "tests" / "golden" / "asked"
SITES = ("h200x4", "h20-roce")
# What no delivery of these sites declares is added, so that its checks are asked as well.
CONFIG = """
from pathlib import Path
from busbar.delivery.reframe import configuration

site_configuration = configuration(Path({site!r}))
for each in site_configuration["environments"]:
    each["features"] += ["ucx", "libfabric", "torch"]
    each["extras"]["programs"]["fi_rma_bw"] = "fi_rma_bw"
"""
FIELDS = (
    *("ranks", "nodes", "buffers", "transports", "log", "validated", "placed", "bands"),
    "end",
)


def asked(directory: Path) -> dict[str, list[dict[str, object]]]:
    """By benchmark and its options: what is asked, each different launch once."""
    found: dict[str, list[dict[str, object]]] = {}
    for file in sorted(directory.rglob("asked.json")):
        for launch in json.loads(file.read_text()):
            program, *options = launch["command"]
            # Of paths the name: pair.sh, torch_collectives.py.
            words = [Path(word).name if "/" in word else word for word in (program, *options)]
            facts = {name: launch[name] for name in FIELDS if launch[name] not in ("", [], None)}
            facts["sizes"] = (
                f"{min(launch['sizes'], default=0)} to {max(launch['sizes'], default=0)}"
            )
            facts["gpus"] = len(launch["gpus"])
            rows = found.setdefault(" ".join(words), [])
            if facts not in rows:
                rows.append(facts)
    return found


def dry_run(site: str, directory: Path, *options: str) -> str:
    """Leave the jobs of a site's checks in a directory; return what ReFrame printed."""
    config = directory / "reframe.py"
    config.write_text(CONFIG.format(site=str(ROOT / "site" / site)))
    done = reframe(directory, config, "-p", "spack", *options)
    return done.stdout + done.stderr


@pytest.mark.parametrize("site", SITES)
def test_what_the_checks_of_a_site_ask(site: str, tmp_path: Path) -> None:
    printed = dry_run(site, tmp_path, "-t", "nightly|full")
    found = yaml.safe_load(yaml.safe_dump(asked(tmp_path)))
    assert found, printed
    golden = GOLDEN / f"{site}.yaml"
    if os.environ.get("GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(yaml.safe_dump(found, width=120, default_flow_style=None))
    assert found == yaml.safe_load(golden.read_text())


def test_each_file_shows_its_command_lines(tmp_path: Path) -> None:
    """The lines after a dollar sign in the docstring of a file are lines that its checks run."""
    ran = [line for s in SITES for line in yaml.safe_load((GOLDEN / f"{s}.yaml").read_text())]
    scripts = list((GOLDEN.parent / "jobs").glob("*.sh"))
    dry_run("h200x4", tmp_path, "-n", "^(gpu_aware|link_matrix|memory)( |$)")
    scripts += tmp_path.rglob("rfm_job.sh")
    ran += [line for script in scripts for line in script.read_text().splitlines()]
    for file in sorted(CHECKS.glob("*.py")):
        text = file.read_text()
        shown = re.findall(r"(?m)^\$ (.*)$", text.split('"""')[1])
        assert bool(shown) == ("@rfm.simple_test" in text)
        for line in shown:
            words = re.escape(line).replace(re.escape("..."), ".*")
            assert any(re.search(rf"(^|[ /]){words}( |$)", each) for each in ran), (file, line)
