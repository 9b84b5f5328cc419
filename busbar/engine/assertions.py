# SPDX-License-Identifier: MIT
"""Requirements for every benchmark run, one function each.

`ASSERTIONS` is the whole list; `tests/reframe/test_minimum.py` shows that none can be left out
unnoticed.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from operator import attrgetter

from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Reading
from busbar.engine.tool import Contradiction, Requested, tool_of
from busbar.parse import numbers
from busbar.parse.events import Check, End, Error, Idle, Placed, Rank, Start
from busbar.parse.tables import beside
from busbar.units import format_bytes
from busbar.verdict import Verdict
from busbar.words import grouped


def differences(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    """Yield where the output differs from the question."""
    yield from late_readings(shown)
    for contradiction in contradictions(shown.facts, launch.bench, launch.ranks):
        yield contradiction.text
    tool = tool_of(launch.bench)
    if tool is None:
        yield "this benchmark is unknown, so its output cannot be compared with the request"
    else:
        yield from tool.answer(launch, shown)
        yield from copied(shown.readings)
        yield from stated([*tool.stated, *_OF_ANY], launch, shown)


def copied(readings: Iterable[Reading]) -> Iterator[str]:
    """Yield that readings repeat one another to the last of five digits.

    Two values can be the same, but not two series, nor a quarter of all.
    """
    rates = [r for r in readings if r.kind in ("bw", "busbw")]
    exact = [r for r in rates if r.value >= _EXACT_GB_PER_S[r.in_place is not None]]
    of_series = attrgetter("kind", "in_place", "operation", "source", "target", "buffers")
    series = grouped((of_series(r), r.value) for r in exact)
    alike = Counter(tuple(values) for values in series.values() if len(values) >= _SERIES)
    value, count = Counter(r.value for r in exact).most_common(1)[0] if exact else (0.0, 0)
    if max(alike.values(), default=0) > 1:
        yield "two series of readings are the same to the last digit"
    elif count > max(_SERIES, len(exact) // 4):
        yield f"{count} of {len(exact)} readings are {value:g}"


def stated(rows: Iterable[Requested], launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    """Yield what the output says of the request that differs from it, or does not say."""
    text = "\n".join(shown.text)
    words = [*pairwise(part for word in launch.command for part in word.split("=", 1))]
    for row in rows:
        if not re.search(row.when, text) or (row.unless and re.search(row.unless, text)):
            continue
        asked = [value for option, value in words if option in row.options][-1:]
        asked = asked or [
            each.format(ranks=launch.ranks, pairs=launch.ranks // 2) for each in row.values
        ]
        found = re.finditer(row.line, text, re.MULTILINE)
        if row.always and shown.readings and not next(found, None):
            yield f"the output does not name its {row.what}"
        others = (each["value"] for each in found if asked and each["value"] not in asked)
        if asked != ["all"] and (value := next(others, "")):
            yield f"requested {row.what} {' or '.join(asked)}, but {value.strip()} was used"


def contradictions(
    output: JobOutput, operation: str | None, ranks: int | None
) -> Iterator[Contradiction]:
    """Yield where one run contradicts itself; of rows and sizes only the first.

    ``operation`` is the collective, or None if it is not known.
    """
    for text, evidence in output.contradictions[:1]:
        yield Contradiction(text, evidence)
    if tool := tool_of(output.tool):
        yield from tool.contradictions(output, operation, ranks)


def late_readings(shown: LaunchOutput) -> Iterator[str]:
    """Yield that readings follow the end of the output, which its process prints last.

    The launcher can mix lines of different ranks, not of one rank: each rank of our
    programs prints its readings, then that it is idle.
    """
    facts, own = shown.facts, shown.file
    exit_line = shown.first + len(shown.until_exit)
    ends = [facts.finished, facts.out_of_bounds.evidence if facts.out_of_bounds else None]
    end = min((line.line for line in ends if line and line.file == own), default=exit_line)
    idle = {rank.rank: line.line for rank, line in facts.events_of(Idle)}
    last_idle = max(idle.values(), default=0)
    lines = [(each.evidence, idle.get(each.source or 0, end)) for each in facts.readings]
    lines += [(line, max(last_idle, end)) for _, line in facts.events_of(Check)]
    for line, last in lines:
        if line and (line.file != own or line.line > min(last, exit_line)):
            place = "" if line.file == own else f" of {line.file}"
            yield f"line {line.line}{place} is a reading after the end of the output"
            return


Problem = tuple[Verdict, str]
Assertion = Callable[[BenchLaunch, LaunchOutput], Iterator[Problem]]

_FAILED = Verdict.FAILED
_OF_ANY = [Requested(what, **row) for what, row in beside(__file__).items()]
_EXACT_GB_PER_S, _SERIES = (10.0, 100.0), 3
"""A tool that measures in place prints two decimals, others more digits."""
_EXACT = 0.01
"""NCCL rounds a message to what divides among the ranks; by less than this share."""
_MEANINGFUL = 1 << 30
"""A tool lowers its largest size to what fits into the GPU's memory: below this one the links
are not judged, so a GPU that is that full has failed."""


def ranks(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[Problem]:
    """As many ranks as requested, of one job, on as many nodes."""
    if reason := other_ranks(launch, shown):
        yield _FAILED, reason
    if shown.runs > 1 or not launch.placed:
        return
    numbers = [place.rank for place in shown.ranks]
    if reason or shown.died:
        pass
    elif missing := [rank for rank in range(launch.ranks) if rank not in numbers]:
        yield _FAILED, not_placed(missing)
    yield from _places(launch, shown)


def not_placed(ranks: Sequence[int]) -> str:
    """Return the problem of ranks whose node is unknown."""
    numbers = ", ".join(map(str, ranks))
    if len(ranks) == 1:
        return f"rank {numbers} did not report which node it ran on"
    return f"ranks {numbers} did not report which node they ran on"


def other_ranks(launch: BenchLaunch, shown: LaunchOutput) -> str:
    """Return why the number of ranks differs from the request; empty if it does not.

    Readings of such a launch do not answer the request.
    """
    tool = tool_of(launch.bench)
    if tool and tool.lone and (alone := tool.lone(launch, shown)):
        return alone
    if shown.runs > 1:
        return f"{shown.runs} separate programs started instead of one"
    sizes = {place.ranks for place in shown.ranks if place.ranks is not None}
    sizes |= {start.ranks for start, _ in shown.facts.events_of(Start)}
    if launch.placed and sizes - {launch.ranks}:
        started = ", ".join(map(str, sorted(sizes)))
        return f"requested {launch.ranks} ranks, but the launcher started {started}"
    return ""


def _places(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[Problem]:
    """Each rank appears once, on the nodes of the job; no line is from another host."""
    per_node = launch.ranks // launch.nodes
    strange = [p for p in shown.ranks if p.rank >= launch.ranks or p.node_rank >= per_node]
    for place in strange[:1]:
        yield _FAILED, f"unexpected rank {place.rank}, {place.node_rank} on its node"
    for name in ("rank", "node_rank"):  # in containers, several processes can have one number
        keys = Counter((type(p), name != "rank" and p.host, getattr(p, name)) for p in shown.ranks)
        for _, _, value in [each for each, count in keys.items() if count > 1][:1]:
            yield _FAILED, f"two ranks have {name} {value}"
    # In a container, all process numbers can be others.
    own = {(_short(each.host), each.pid) for each in shown.facts.devices.values()}
    own |= {(_short(each.host), each.pid) for each, _ in shown.facts.events_of(Rank)}
    placed = {(_short(each.host), each.pid) for each in shown.ranks if isinstance(each, Placed)}
    if own & placed and own != placed:
        yield _FAILED, "the tool names other processes than those that were placed"
    hosts = {_short(place.host) for place in shown.ranks}
    if not hosts:
        return
    if len(hosts) != launch.nodes:
        yield _FAILED, f"requested {launch.nodes} nodes, but the ranks ran on {len(hosts)}"
    if others := {_short(host) for host in shown.facts.hosts} - hosts:
        yield _FAILED, f"the output names {', '.join(sorted(others))}, where no rank ran"


def _short(host: str) -> str:
    return host.partition(".")[0]


def placement(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[Problem]:
    """Each rank on the GPU it should have, and no two on one."""
    for place in shown.ranks if launch.gpus else ():
        if place.visible is None or place.node_rank >= len(launch.gpus):
            continue
        expected = launch.gpus[place.node_rank]
        visible = [v for v in place.visible.split(",") if v]
        used = visible[place.node_rank % len(visible)] if visible else str(place.node_rank)
        # The index of a device named by UUID or partition is unknown.
        if numbers.is_whole(used) and numbers.count(used) != expected:
            yield _FAILED, f"rank {place.rank} must use GPU {expected}, but it sees {used}"
    # Versions before 2.12 print only the bus, which two GPUs may share.
    named = [
        (d.host, d.bus if ":" in d.bus else f"{d.bus}, device {d.device}")
        for d in shown.facts.devices.values()
    ]
    named += [(place.host, place.device) for place in shown.ranks if place.device]
    for (host, bus), count in Counter(named).items():
        if count > 1 and not launch.share_gpus:
            yield _FAILED, f"{count} ranks share the GPU {bus} of {host}"


def transport(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[Problem]:
    """The data used one of the permitted transports."""
    facts = shown.facts
    if launch.provider and not shown.died:
        yield from _provider(launch.provider, shown)
    # A run that died need not have come to its transports.
    if not launch.transports or (shown.died and not facts.transports and not facts.endpoints):
        return
    if launch.log == "nccl":
        used = set(facts.transports)
        wrong = {way for way in used if not way.startswith(launch.transports)}
    else:
        peers = [set(e.lanes) for e in facts.endpoints if not e.loopback]
        ways = {*launch.transports, *launch.across}
        used = {lane for lanes in peers for lane in lanes}
        wrong = {lane for lanes in peers if not lanes & ways for lane in lanes}
        if not used & set(launch.transports):
            wrong = used
    if not used:
        yield _FAILED, f"the log of {launch.log or 'ucx'} does not show the transport of the data"
    elif wrong:
        wanted = " or ".join(launch.transports)
        yield Verdict.DEGRADED, f"the data used {', '.join(sorted(wrong))}, not {wanted}"


_PROVIDER = re.compile(r"(?:^libfabric provider|^\s*prov_name|\bmtl:ofi:prov): (?P<name>\S+)")


def _provider(wanted: str, shown: LaunchOutput) -> Iterator[Problem]:
    used = {match["name"] for line in shown.text if (match := _PROVIDER.search(line))}
    if not used:
        text = "the output does not show which libfabric provider was used"
        how = "MPICH: MPIR_CVAR_DEBUG_SUMMARY=1, Open MPI: OMPI_MCA_mtl_base_verbose=1"
        yield _FAILED, f"{text} ({how})"
    # A provider on top of others is named after them, verbs;ofi_rxm or shm+cxi:lnx, or alone: lnx.
    elif other := {name for name in used if not {wanted, "lnx"} & {*re.split("[;+:]", name)}}:
        yield Verdict.DEGRADED, f"libfabric used {', '.join(sorted(other))}, not {wanted}"


def data(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[Problem]:
    """No wrong element, and checked if checking was requested."""
    facts = shown.facts
    unit = "bytes arrived wrong" if facts.events_of(Start) else "wrong"
    for reading in [reading for reading in shown.readings if reading.wrong][:1]:
        yield _FAILED, f"{reading.wrong} {unit} at {format_bytes(reading.nbytes)}"
    for end in [end for end, _ in facts.events_of(End) if end.wrong]:
        yield _FAILED, f"the program counts {end.wrong} wrong"
    if facts.out_of_bounds and not facts.out_of_bounds.okay:
        yield _FAILED, f"the tool counts {facts.out_of_bounds.wrong} values out of bounds"
    tool = tool_of(launch.bench)
    checked = tool is not None and tool.checked(launch, shown)
    if launch.validated and not shown.died and not checked:
        yield _FAILED, "data validation was requested, but the output does not confirm it"


def metrics(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[Problem]:
    """The program ended well, and every requested size has a reading."""
    problems = list(_ends(launch, shown))
    if missing := _missing(launch, shown):
        problems.append(missing if problems else f"{launch.bench}: {missing}")
    if shown.died:  # one reason for all that is missing
        yield _FAILED, "; ".join(problems)
    else:
        yield from ((_FAILED, problem) for problem in problems)


def _ends(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    """Yield what the program says went wrong, and that it did not end well."""
    facts = shown.facts
    yield from dict.fromkeys(error.text for error, _ in facts.events_of(Error))
    yield from [line for line in shown.text if line.startswith(f"{launch.bench}: ")][:1]
    if facts.exit_status is None:
        yield f"{launch.bench}: the output ends before the exit status"
    elif code := facts.exit_status.code:
        yield f"{launch.bench}: exit status {code}{_signal(code)}"
    elif launch.end and facts.finished is None:
        yield f"{launch.bench}: the output ends before the tool's last line"


def _signal(status: int) -> str:
    """Return the name of the signal that a shell reports by its exit status."""
    with suppress(ValueError):  # the program's own status
        return f" ({signal.Signals(status - 128).name})"
    return ""


def _missing(launch: BenchLaunch, shown: LaunchOutput) -> str:
    """Return the requested sizes without a reading, as one sentence."""
    facts = shown.facts
    read = {reading.nbytes for reading in shown.readings}
    most = facts.max_bytes or max(launch.sizes, default=0)
    wanted = [size for size in launch.sizes if size <= max(most, _MEANINGFUL)]
    missing = [
        size for size in wanted if not any(abs(size - got) <= size * _EXACT for got in read)
    ]
    if not missing:
        return ""
    sizes = ", ".join(format_bytes(size) for size in missing[:4])
    more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
    return f"no reading at {sizes}{more}"


def nonce(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[Problem]:
    """The output is of this job, not of an earlier one.

    A recorded run, which no check has started, has no nonce: nothing is compared.
    """
    nonces = [start.nonce for start, _ in shown.facts.events_of(Start)]
    if launch.nonce and not nonces:
        yield _FAILED, "the output has no start event, so it may be from another run"
    for other in nonces if launch.nonce else ():
        if not other:
            why = "an older program, or the output of another run"
            yield _FAILED, f"the start event has no nonce: {why}"
        elif other != launch.nonce:
            why = f"its nonce is {other}, not {launch.nonce}"
            yield _FAILED, f"the output is from another run: {why}"


def answer(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[Problem]:
    """The output agrees with itself and with what was requested."""
    for text in differences(launch, shown):
        yield _FAILED, f"{launch.bench}: {text}"


_ALL = (ranks, placement, transport, data, metrics, nonce, answer)
ASSERTIONS: dict[str, Assertion] = {each.__name__: each for each in _ALL}
"""By the names of the minimum list; ``low`` and ``impossible`` are in `busbar.engine.judge`."""
