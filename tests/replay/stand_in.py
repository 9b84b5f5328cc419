#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A test double: stands under the name of a benchmark or a launcher and replays recorded output.

``REPLAY_INDEX`` names the index (`index.yaml` here, as JSON), ``REPLAY_CASE`` the case.
Of the entries of that case the one is taken whose program is the name this was started by and
whose ``visible``, ``arguments`` and ``set`` are those of this start. Its output says that it is a
double.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NO_RECORD = 64
PYTHON = "torch-python"
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_WITH_VALUE = {"-n", "-np", "-N", "--hostfile", "-x", "--bind-to", "-p", "-f"}


def launch(arguments: list[str], case: dict) -> int:
    """Starts the first rank of the program; of the others only what says where they are."""
    ranks, per_node, command = 1, 0, list(arguments)
    while command and command[0].startswith("-"):
        option = command.pop(0)
        if option in _WITH_VALUE:
            value = command.pop(0)
            ranks = int(value) if option in ("-n", "-np") else ranks
            per_node = int(value) if option == "-N" else per_node
    # What stands before the program; the last word says where a rank is.
    before = [at for at, word in enumerate(command) if word.endswith("/placed.sh")]
    program = before[-1] + 1 if before else 0
    if "ranks" in case:  # Slurm tells srun, and there is none
        ranks = case["ranks"][Path(command[program]).name]
        per_node = ranks // len(case["hosts"])
    others = range(1, ranks) if before else ()
    # The records were made by the first rank, and come last: all have said where they are by then.
    for number in (*others, 0):
        place = {
            "OMPI_COMM_WORLD_RANK": number,
            "OMPI_COMM_WORLD_SIZE": ranks,
            "OMPI_COMM_WORLD_LOCAL_RANK": number % (per_node or ranks),
            "REPLAY_NODE": number // (per_node or ranks),
        }
        environment = {**os.environ, **{name: str(value) for name, value in place.items()}}
        started = [command[program - 1], "true"] if number else command
        status = subprocess.run(started, env=environment, check=False).returncode
    return status


def compile_double(arguments: list[str]) -> int:
    """What the compiler leaves is this double under the program's name."""
    target = Path(arguments[arguments.index("-o") + 1])
    target.unlink(missing_ok=True)
    target.symlink_to(Path(__file__).resolve())
    return 0


def entry(case: dict, program: str, arguments: list[str]) -> dict | None:
    """The record for this start."""
    visible = next((os.environ[name] for name in _VISIBLE if os.environ.get(name)), "")
    line = " ".join(arguments)
    for record in case["records"]:
        name, _, value = record.get("set", "").partition("=")
        if (
            record["program"] == program
            and record.get("visible", visible) == visible
            and record.get("arguments", "") in line
            and (not name or os.environ.get(name, "") == value)
        ):
            return record
    return None


def replay(record: dict, root: Path, arguments: list[str]) -> int:
    """Prints the first launch of the record and returns its exit status.

    Its command line, what `placed.sh` said and a log that goes to files are left out: this job has
    its own.
    """
    print(f"# TEST DOUBLE: replays {record['file']}", flush=True)
    lines, status = [], 0
    for line in read(root / record["file"]):
        if line.startswith("exit_status="):
            status = 0 if record.get("ended") else int(line.split("=")[1])
            break
        ours = line.startswith(("$ ", '{"placed"')) or ("log" in record and "NCCL INFO" in line)
        if not ours and asked_for(line, arguments):
            lines.append(with_nonce(with_options(line, arguments)))
    sys.stdout.writelines(lines)
    if "log" in record:
        write_logs(record, root)
    return status


def with_nonce(line: str) -> str:
    """The start event of our own programs repeats the nonce of the job."""
    return re.sub(r'(?<="nonce": ")[0-9a-f]+', os.environ.get("BUSBAR_NONCE", ""), line)


def asked_for(line: str, arguments: list[str]) -> bool:
    """Whether OSU would print this line: a record may have more sizes than are asked for."""
    row = re.match(r"(\d+)\s", line)
    if not row or "-m" not in arguments:
        return True
    least, most = arguments[arguments.index("-m") + 1].split(":")
    return int(least) <= int(row[1]) <= int(most)


_PARAMETERS = {"-b": "minBytes", "-e": "maxBytes", "-n": " iters:", "-w": "warmup iters:"}


def with_options(line: str, arguments: list[str]) -> str:
    """The line that repeats the options of nccl-tests, with those of this start."""
    if not line.startswith("# nThread"):
        return line
    for option, value in zip(arguments, arguments[1:]):  # noqa: B905, RUF007 - any Python runs this
        if option in _PARAMETERS:
            shift = {"K": 10, "M": 20, "G": 30}.get(value[-1], 0)
            number = int(value[:-1] if shift else value) << shift
            before = "(?<!agg)(?<!warmup)" if option == "-n" else ""
            name = _PARAMETERS[option]
            line = re.sub(rf"{before}{name} \d+", f"{name} {number}", line)
    return line


def read(path: Path) -> Iterator[str]:
    """The lines of a record, gzip or not."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", errors="backslashreplace") as stream:
        yield from stream


def write_logs(record: dict, root: Path) -> None:
    """NCCL's own log, where ``NCCL_DEBUG_FILE`` asks for it."""
    name = os.environ["NCCL_DEBUG_FILE"].replace("%h", "double").replace("%p", str(os.getpid()))
    # Table and log are of two runs, with two versions of NCCL, and maybe two collectives.
    lines = [
        line
        for line in read(root / record["log"])
        if "NCCL INFO" in line and "NCCL version" not in line and "Bytes -> Algo" not in line
    ]
    Path(name).write_text("# TEST DOUBLE\n" + "".join(lines))


def program(name: str, arguments: list[str], case: dict, root: Path) -> int:
    """A benchmark."""
    if name == PYTHON and arguments[0] == "-c":
        return 0  # asked whether it has PyTorch
    if name == "ucx_perftest" and arguments[-1].startswith("-p"):
        signal.alarm(30)  # the server, which serves until it is ended
        signal.pause()
    record = entry(case, name, arguments)
    if record is None:
        print(f"# TEST DOUBLE: no record for {name} {' '.join(arguments)}")
        return NO_RECORD
    return replay(record, root, arguments)


def main() -> int:
    """Acts for the name that this was started by."""
    index = json.loads(Path(os.environ["REPLAY_INDEX"]).read_text())
    case = index["cases"][os.environ["REPLAY_CASE"]]
    name, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    hosts = case.get("hosts", ["vm"])
    said = {
        "mpirun --version": "mpirun (Open MPI) 5.0.11: test double",
        "srun --mpi=list": "MPI plugin types are...\n\tpmix\n\tcray_shasta",
        "scontrol show hostnames ": "\n".join(hosts),
        "ompi_info --parsable --all": "mpi_built_with_cuda_support:value:"
        + case.get("aware", "false"),
    }
    if (line := " ".join([name, *arguments])) in said:
        print(said[line])
        return 0
    if name in ("mpirun", "srun"):
        return launch(arguments, case)
    if name in ("mpic++", "CC"):
        return compile_double(arguments)
    return program(name, arguments, case, Path(index["root"]))


if __name__ == "__main__":
    sys.exit(main())
