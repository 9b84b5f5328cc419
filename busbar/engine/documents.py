# SPDX-License-Identifier: MIT
"""JSON documents and pickles of other programs as lines, one for each fact that they hold.

PyTorch's flight recorder (one file per rank), Loki's query API, Kubernetes lists of events and
pods, ``sacct --json`` and ``scontrol show job --json``, ``dcgmi diag -j``.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from busbar.parse import numbers

PICKLE = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""How a pickle begins."""
_MOST_PICKLE_BYTES = 16 << 20
_MOST_LINES = 1_000_000
_MOST_SIZES = 16
"""Dimensions of a tensor."""
_BROKEN = (ValueError, KeyError, TypeError, AttributeError, IndexError)


class _Data(pickle.Unpickler):
    """Reads plain containers, strings and numbers; nothing is imported or called."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the pickle holds {module}.{name}")


def load(data: bytes) -> Any:
    """Return a document of JSON or a pickle of plain data; None for anything else."""
    if data.startswith(PICKLE):
        with suppress(Exception):  # a damaged pickle raises anything
            return _Data(io.BytesIO(data)).load() if _is_bounded(data) else None
    else:
        with suppress(ValueError):  # not JSON
            return numbers.load_json(data)
    return None


def _is_bounded(data: bytes) -> bool:
    """Whether objects are numbered as writers do: the reader makes room for the largest number."""
    numbered = ((op.name, arg or 0) for op, arg, _ in pickletools.genops(data))
    return len(data) <= _MOST_PICKLE_BYTES and all(
        arg <= before for before, (name, arg) in enumerate(numbered) if "PUT" in name
    )


def lines_of(data: bytes, file: str) -> bytes | None:
    """Return the lines of a document; None for an unknown kind."""
    document = load(data)
    for key, read in _READERS.items():
        if isinstance(document, dict) and key in document:
            with suppress(*_BROKEN):  # of another tool with the same key
                lines = islice(read(document, file), _MOST_LINES)
                return "\n".join(each.replace("\n", " | ") for each in lines).encode()
    return None


Collective = tuple[str, int, str, int, str]
"""Group, number, operation, elements and state."""


def last_collectives(document: Mapping[str, Any]) -> Iterator[Collective]:
    """Yield the unfinished or last operation of each group in a flight recorder dump.

    https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html, version 2.
    """
    last: dict[str, Mapping[str, Any]] = {}
    for entry in document["entries"]:
        name = _text(entry["process_group"][-1])
        if last.get(name, {}).get("state", "completed") == "completed":
            last[name] = entry
    for name, entry in last.items():
        operation = _text(entry["profiling_name"]).rpartition(":")[2].upper()
        sizes = entry["input_sizes"][0] if entry["input_sizes"] else (0,)
        elements = math.prod(map(numbers.json_whole, sizes[:_MOST_SIZES]))
        number = numbers.json_whole(entry["collective_seq_id"])
        yield name, number, operation, elements, _text(entry["state"])


def _text(value: object) -> str:
    """Return a string; raise for others, whose text can have any length."""
    if not isinstance(value, str):
        raise TypeError("a text is missing")
    return value


def _flight_recorder(document: Mapping[str, Any], file: str) -> Iterator[str]:
    found = re.search(r"(?P<rank>\d{1,7})(?:\.\w+)?$", file)
    rank = found["rank"] if found else ""
    groups = document["pg_config"].values()
    largest = max((len(re.findall(r"\d+", _text(each["ranks"]))) for each in groups), default=0)
    yield f"flight recorder of rank {rank} of {largest}"
    for name, number, operation, elements, state in last_collectives(document):
        yield (
            f"[{name} Rank {rank}] flight recorder: SeqNum={number},"
            f" OpType={operation}, NumelIn={elements}, state {state}"
        )


def _loki(document: Mapping[str, Any], _: str) -> Iterator[str]:
    """https://grafana.com/docs/loki/latest/reference/loki-http-api/#query-logs-within-a-range."""
    found = [
        (numbers.json_whole(value[0][:16]), stream.get("stream", {}), value[1])
        for stream in document["data"]["result"]
        for value in stream["values"]
    ]
    for micros, labels, line in sorted(found, key=lambda each: each[0]):
        host = _first(labels, "node_name", "host", "hostname", "instance", "pod")
        program = _first(labels, "container", "app", "unit", "job") or "loki"
        time = datetime.fromtimestamp(micros * 1e-6, UTC)
        place = f"{host} {program}: " if host else ""
        yield f"{time:%Y-%m-%dT%H:%M:%SZ} {place}{line}"


def _first(labels: Mapping[str, Any], *names: str) -> str:
    """Return the first label that there is, as one word."""
    found = next((str(labels[name]) for name in names if labels.get(name)), "")
    return re.sub(r"[^\w.-]", "-", found)


def _kubernetes(document: Mapping[str, Any], _: str) -> Iterator[str]:
    """https://kubernetes.io/docs/reference/kubernetes-api/, Event v1 and Pod v1."""
    for each in document["items"]:
        if "involvedObject" in each:
            time = each.get("lastTimestamp") or ""
            node = each.get("source", {}).get("host") or each["involvedObject"].get("name", "")
            place = f"{node} kubernetes: " if node else ""
            yield f"{time} {place}{each['type']} {each['reason']} {each.get('message', '')}"
        for status in each.get("status", {}).get("containerStatuses", ()):
            for state in (status.get("state", {}), status.get("lastState", {})):
                if ended := state.get("terminated"):
                    name, node = each["metadata"]["name"], each.get("spec", {}).get("nodeName")
                    reason, code = ended.get("reason"), ended["exitCode"]
                    place = f"{node or name} kubelet: {name}"
                    yield f"{ended.get('finishedAt')} {place} Reason: {reason} Exit Code: {code}"


def _slurm(document: Mapping[str, Any], _: str) -> Iterator[str]:
    """https://slurm.schedmd.com/rest_api.html, as ``scontrol --oneliner show job`` prints it.

    Of a job that was requeued, the last run counts.
    """
    for job in {job["job_id"]: job for job in document["jobs"]}.values():
        state = job.get("job_state") or job["state"]["current"]
        word = state[0] if isinstance(state, list) else state
        ends = [each.get("exit_code") for each in (job, *(job.get("steps") or ()))]
        signals = (end.get("signal") for end in ends if isinstance(end, dict))
        name = next((each["name"] for each in signals if each and each["name"]), "")
        killed = f" Signal={name}" if name else ""
        yield f"JobId={job['job_id']} JobState={word} NodeList={job.get('nodes', '')}{killed}"


def _dcgm(document: Mapping[str, Any], _: str) -> Iterator[str]:
    """https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html."""
    diagnostic = next(each for key, each in document.items() if key.startswith("DCGM"))
    for test in (test for each in diagnostic["test_categories"] for test in each["tests"]):
        for result in test["results"]:
            words = [str(each.get("warning", each)) for each in result.get("warnings", ())]
            gpu = result.get("gpu_id", result.get("entity_id", ""))
            shown = f"{test['name']}: {str(result['status']).capitalize()} - GPU {gpu}"
            yield f"DCGM diag {shown} {'; '.join(words)}"


_READERS: Mapping[str, Callable[[Mapping[str, Any], str], Iterator[str]]] = {
    "pg_config": _flight_recorder,
    "data": _loki,
    "items": _kubernetes,
    "jobs": _slurm,
    "DCGM GPU Diagnostic": _dcgm,
    "DCGM Diagnostic": _dcgm,
}
