#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A test double: stands under the name of a benchmark or a launcher and replays recorded output.

``REPLAY_INDEX`` names the index (`index.yaml` here, as JSON), ``REPLAY_CASE`` the case.
Of the entries of that case the one is taken whose program is the name this was started by and
whose ``visible`` and ``arguments`` are those of this start. Its output says that it is a double.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

NO_RECORD = 64


def rank() -> int:
    """The rank that the launcher's double has given."""
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))


def mpirun(arguments: list[str]) -> int:
    """Starts the program once for each rank, one after the other, as one launch would."""
    ranks, per_node, command = 1, 0, list(arguments)
    while command and command[0].startswith("-"):
        option = command.pop(0)
        if option in ("-n", "-np", "-N", "--hostfile", "-x"):
            value = command.pop(0)
            ranks = int(value) if option in ("-n", "-np") else ranks
            per_node = int(value) if option == "-N" else per_node
    status = 0
    # The records were made by the first rank, and come last: all have said where they are by then.
    for number in (*range(1, ranks), 0):
        place = {
            "OMPI_COMM_WORLD_RANK": number,
            "OMPI_COMM_WORLD_SIZE": ranks,
            "OMPI_COMM_WORLD_LOCAL_RANK": number % (per_node or ranks),
            "REPLAY_NODE": number // (per_node or ranks),
        }
        environment = {**os.environ, **{name: str(value) for name, value in place.items()}}
        status = subprocess.run(command, env=environment, check=False).returncode or status
    return status


def entry(case: dict, program: str, arguments: list[str]) -> dict | None:
    """The record for this start."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("HIP_VISIBLE_DEVICES") or ""
    line = " ".join(arguments)
    for record in case["records"]:
        if (
            record["program"] == program
            and record.get("visible", visible) == visible
            and record.get("arguments", "") in line
        ):
            return record
    return None


def replay(record: dict, root: Path) -> int:
    """Prints the first launch of the record and returns its exit status.

    Its command line and what `placed.sh` said then are left out: this job has its own.
    """
    path = root / record["file"]
    print(f"# TEST DOUBLE: replays {record['file']}", flush=True)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", errors="backslashreplace") as stream:
        for line in stream:
            if line.startswith("exit_status="):
                return int(line.split("=")[1])
            if not line.startswith(("$ ", '{"placed"')):
                sys.stdout.write(line)
    return 0


def main() -> int:
    """Acts for the name that this was started by."""
    index = json.loads(Path(os.environ["REPLAY_INDEX"]).read_text())
    case = index["cases"][os.environ["REPLAY_CASE"]]
    program, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    if program == "mpirun":
        return mpirun(arguments)
    hosts = case.get("hosts", ["vm"])
    said = {
        "uname": hosts[int(os.environ.get("REPLAY_NODE", "0"))],
        "scontrol": "\n".join(hosts),
        "ompi_info": f"mpi_built_with_cuda_support:value:{case.get('aware', 'false')}",
    }
    if program in said:
        print(said[program])
        return 0
    if rank() != 0:
        return 0
    record = entry(case, program, arguments)
    if record is None:
        print(f"# TEST DOUBLE: no record for {program} {' '.join(arguments)}")
        return NO_RECORD
    return replay(record, Path(index["root"]))


if __name__ == "__main__":
    sys.exit(main())
