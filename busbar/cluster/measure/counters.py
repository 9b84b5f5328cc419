# SPDX-License-Identifier: MIT
"""Read the counters of network ports on all nodes at once, by a short step of Slurm."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from busbar.parse.port_counters import COUNTERS, DRIVER, parse_counters
from busbar.program import call
from busbar.slurm.steps import environment_of_job, srun

_READ_S = 20
_FILES = " ".join(each.place for each in COUNTERS if not each.place.startswith(DRIVER))
_NAMES = "|".join(f"{each.name}:" for each in COUNTERS if each.place.startswith(DRIVER))
_SCRIPT = f"""\
PATH=$PATH:/usr/sbin:/sbin
line=$SLURMD_NODENAME
for file in {_FILES}; do
    read -r value <"$file" && [ "${{value%%@*}}" != 0 ] && line="$line $file=${{value%%@*}}"
done
for port in /sys/class/net/*; do
    set -- $(ethtool -S "${{port##*/}}")
    while [ $# -gt 1 ]; do
        case $1 in {_NAMES}) line="$line {DRIVER}/${{port##*/}}/${{1%:}}=$2" ;; esac
        shift
    done
done
echo "$line"
"""
"""Prints the node, and those above zero as ``PLACE=VALUE``. Slingshot adds ``@`` and the time."""


class CounterRead(threading.Thread):
    """A look at the counters of nodes, which goes on while the caller does something else."""

    def __init__(self, nodes: Collection[str]) -> None:
        super().__init__(daemon=True)
        self._nodes = nodes
        self._found: dict[str, dict[str, int]] = {}
        self.start()

    def run(self) -> None:
        """Ask all nodes; those that do not answer in time are left out."""
        command = [*srun(self._nodes), "sh", "-c", _SCRIPT]
        text = call(command, _READ_S, environment_of_job()).stdout
        lines = (line.partition(" ") for line in text.splitlines())
        self._found = {node: parse_counters(words) for node, _, words in lines}

    def result(self) -> Mapping[str, Mapping[str, int]]:
        """Return the counters above zero by node and place."""
        self.join()
        return self._found
