# SPDX-License-Identifier: MIT
"""What a prolog waits for: the gate starts without the packages that take long to load."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {"reframe", "pandas", "matplotlib", "networkx", "numpy", "jinja2", "prometheus_client"}
CODE = """
import json, sys
from busbar import cli
import busbar.gate.passive, busbar.gate.ports, busbar.gate.state, busbar.site.load
status = cli.main(["gate", "--passive", "--json"])
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def test_passive_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    status, modules = json.loads(done.stdout.splitlines()[-1])
    assert (status, HEAVY & set(modules)) == (0, set())
