# SPDX-License-Identifier: MIT
"""The JSON documents that commands print. Keys are only ever added; docs/reference/json.md
has the schemas."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic refuses typing's before 3.12

from busbar.verdict import Verdict

Proof = Literal["run", "replay", "none"]


class EvidenceRow(TypedDict):
    """A line of the input that shows something."""

    file: str
    """File of the input."""
    line: int
    """Counted from 1."""
    text: str
    """The line, without secrets."""


class NoteRow(TypedDict):
    """A fact worth knowing that is not a fault."""

    id: str
    """Stable; docs/reference/causes.md lists them."""
    summary: str
    """What was found, in one sentence."""
    evidence: list[EvidenceRow]
    """The lines that show it."""
    details: NotRequired[dict[str, Any]]
    """Computed values; the keys depend on the id."""


class CauseRow(NoteRow):
    """Why a run is not a pass."""

    confidence: Literal["certain", "likely"]
    """``certain`` if the output proves it."""
    remedy: str
    """What to do."""


class CheckNote(NoteRow):
    """A note of ``busbar check``."""

    check: str
    """Check and its parameters, as ReFrame shows them."""


class CheckCause(CauseRow):
    """A cause of ``busbar check``."""

    check: str
    """Check and its parameters, as ReFrame shows them."""


class Skipped(TypedDict):
    """A check that was selected but cannot run on this site."""

    check: str
    """Check and its parameters."""
    reason: str
    """The feature that is missing, and why."""


class SeriesRow(TypedDict):
    """What a reading is of: readings of one series compare with each other."""

    check: str
    """The check without its parameters."""
    partition: str
    """Partition of the site."""
    bench: str
    """The benchmark; for nccl-tests and rccl-tests the collective."""
    harness: str
    """What timed a collective."""
    lane: str
    """Lane of UCX."""
    nodes: int
    """Nodes of the run."""
    ranks: int
    """Ranks of all nodes."""
    kind: str
    """``bw``, ``busbw`` or ``latency_us``."""
    operation: str
    """What ran, where one run measures several."""
    buffers: str
    """Memory of sender and receiver."""
    in_place: bool | None
    """Which half of the row of nccl-tests."""
    links: str
    """The links between both ends of a pair of GPUs."""
    bytes: int
    """Message size."""


class ResultRow(TypedDict):
    """One reading, or one thing that went wrong."""

    check: str
    """Check and its parameters."""
    verdict: Verdict
    """Verdict of the reading."""
    where: str
    """The node or nodes."""
    pair: str
    """``0->1`` (ranks or GPUs), the operation of a collective, or empty for the whole run."""
    metric: str
    """``bandwidth``, ``busbw``, ``latency`` or ``correctness``."""
    buffers: str
    """Memory of sender and receiver, device or host: ``D D``, ``H D``."""
    bytes: int | None
    """Message size."""
    gb_per_s: float | None
    """The reading, unless it is a latency."""
    us: float | None
    """The reading if it is a latency."""
    limit: float | None
    """In the unit of the reading, as low, typical and high."""
    low: float | None
    """Start of the band."""
    typical: float | None
    """Typical reading."""
    high: float | None
    """End of the band."""
    calibrated: bool
    """Whether the band is the site's own calibration."""
    model: float | None
    """What links and family call typical if it is."""
    cpu_wait_share: NotRequired[float | None]
    """Part of the reading's time in which a rank waited for a CPU; null if not measured."""
    cause: str
    """Cause ids, separated by commas; empty for a pass."""
    message: str
    """One sentence if the verdict is not pass."""
    series: SeriesRow | None
    """The series of the reading; null if the row is not a reading."""
    partition: str
    """Partition of the site; empty if the result is not of a job."""
    environment: NotRequired[str]
    """ReFrame's environment: delivery and lane."""
    share_of_limit: float | None
    """Reading over limit; null for a latency."""


class CheckDocument(TypedDict):
    """The results of one run of the checks; also written to ``results.json``."""

    schema: Literal["busbar-check/1"]
    """The schema of this document."""
    site: str
    """Name of the site."""
    time: str
    """ISO 8601, UTC."""
    delivery: str
    """How the stack reached the jobs."""
    lane: str
    """The UCX lane: ``ucx-1.14`` or ``ucx-current``; for a prefix, the MPI family."""
    versions: dict[str, str | None]
    """``mpi``, ``ucx``, ``gpu_driver``, and one key for each benchmark."""
    results: list[ResultRow]
    """Every reading and everything that went wrong."""
    causes: list[CheckCause]
    """Why results are not a pass."""
    skipped: list[Skipped]
    """Selected checks that did not run."""
    notes: list[CheckNote]
    """Facts that are not faults."""
    coverage: str
    """How many nodes of a cluster were tested, and why others were not; empty elsewhere."""
    provenance: NotRequired[dict[str, dict[str, str]]]
    """By check: what all its jobs had, such as ``driver`` and ``lock.libfabric``."""
    node_provenance: NotRequired[dict[str, dict[str, dict[str, str]]]]
    """By check and ``where``, for checks with several jobs: what not all of them had."""
    sessions: NotRequired[list[str]]
    """ReFrame's ids of the sessions of the run."""
    interrupted: str | None
    """The signal that ended the run: ``SIGINT``, ``SIGTERM``, ``SIGHUP``, or ``SIGKILL`` if the
    command was killed; null if the run came to its end."""
    verdict: Verdict
    """The worst verdict of the results; ``unjudged`` counts only if no result was judged."""


_SomeEnds = TypedDict("_SomeEnds", {"from": NotRequired[int], "to": NotRequired[int]})


class ReadingRow(_SomeEnds):
    """One measured value; ``from`` and ``to`` are the ranks of a pair."""

    bytes: int
    """Message size."""
    gb_per_s: float | None
    """The rate; for a latency, size over time."""
    kind: Literal["bw", "busbw", "algbw", "latency_us"]
    """What ``gb_per_s`` is."""
    wrong: int
    """Wrong elements or bytes that the tool counted; 0 also if it did not check."""
    us: NotRequired[float | None]
    """Only for a latency."""
    in_place: NotRequired[bool]
    """For nccl-tests: which half of the row."""
    buffers: NotRequired[str]
    """Memory of sender and receiver, device or host: ``D D``, ``H D``."""
    operation: NotRequired[str]
    """What ran, if the run measures several: ``all_reduce``."""
    cpu_wait_share: NotRequired[float]
    """Part of the reading's time in which a rank waited for a CPU; absent if not measured."""
    verdict: NotRequired[Verdict]
    """Only for a reading that was judged."""
    limit: NotRequired[float]
    """In the unit of the reading, as low, typical and high; absent if it is not known."""
    low: NotRequired[float]
    """Start of the band."""
    typical: NotRequired[float]
    """Typical reading."""
    high: NotRequired[float]
    """End of the band."""


class ErrorRow(TypedDict):
    """Invalid input or a missing prerequisite."""

    what: str
    """What is wrong, in one sentence."""
    where: str
    """The file with the key or line; empty if there is none."""
    hint: str
    """What to do; empty if there is nothing to say."""


class ErrorDocument(TypedDict):
    """What every command with ``--json`` prints with exit status 2."""

    schema: Literal["busbar-error/1"]
    """The schema of this document."""
    command: str
    """The subcommand."""
    error: ErrorRow
    """Why it did not run."""


class ExplainDocument(TypedDict):
    """One run: what ran, what it measured, the verdict and its causes."""

    schema: Literal["busbar-explain/1"]
    """The schema of this document."""
    files: list[str]
    """Files of the run."""
    tool: str
    """What ran: ``osu_bw``, ``nccl-tests``, ``gpu_aware``; or ``unknown``."""
    version: str | None
    """Version of the tool or of NCCL."""
    operation: str | None
    """The collective or test: ``all_reduce``, ``osu_bw``."""
    site: str | None
    """The site whose bands judged the readings."""
    ranks: int | None
    """Ranks of all nodes."""
    nodes: int | None
    """Number of nodes."""
    hosts: list[str]
    """Names of the nodes."""
    devices: list[str]
    """One line for each GPU."""
    readings: list[ReadingRow]
    """Every reading."""
    verdict: Verdict
    """Verdict of the run."""
    causes: list[CauseRow]
    """Why the run is not a pass."""
    notes: list[NoteRow]
    """Facts that are not faults."""


class Counts(TypedDict):
    """How well the data supports a band."""

    fitted_parameters: int
    """Numbers of the band that were fitted."""
    readings: int
    """Readings that they were fitted to."""
    fewer_than_half_the_readings: bool
    """Whether there are fewer fitted parameters than half the readings."""


class Expected(Counts):
    """Limit and band; each in GB/s (1e9 bytes per second), or in us for a latency."""

    bytes: int | None
    """Message size."""
    limit_gb_per_s: NotRequired[float | None]
    low_gb_per_s: NotRequired[float | None]
    typical_gb_per_s: NotRequired[float | None]
    high_gb_per_s: NotRequired[float | None]
    limit_us: NotRequired[float | None]
    low_us: NotRequired[float | None]
    typical_us: NotRequired[float | None]
    high_us: NotRequired[float | None]
    path: list[str]
    """The links that the bytes take; the binding one is marked."""
    sources: list[str]
    """Where each number comes from."""
    proof: Proof
    """How far the band is proven."""
    reason: NotRequired[str]
    """The reason for a missing band."""


_Ends = TypedDict("_Ends", {"from": int, "to": int})


class PairRow(Expected, _Ends):
    """One ordered pair of GPUs."""


class ExpectDocument(Expected):
    """The expectation of one benchmark."""

    schema: Literal["busbar-expect/1"]
    """The schema of this document."""
    site: str
    """Name of the site."""
    bench: str
    """The benchmark."""


class MatrixDocument(Counts):
    """The expectations of all ordered pairs of GPUs of a node."""

    schema: Literal["busbar-expect/1"]
    """The schema of this document."""
    site: str
    """Name of the site."""
    bench: str
    """The benchmark."""
    pairs: list[PairRow]
    """One row for each ordered pair."""


_From = TypedDict("_From", {"from": str})


class SiteRow(_From):
    """One site of ``busbar site list``; ``from`` is ``busbar`` or the directory that has it."""

    name: str
    """Name of the site."""
    GPUs: str
    """Count and model of a node's GPUs."""
    fabric: str
    """Provider of the network between nodes."""
    scheduler: str
    """``local``, ``slurm`` or ``squeue``."""
    proof: str
    """``run``, ``replay`` or ``none``; empty for a broken site."""
    description: str
    """One line that describes it."""
    note: str
    """What to do before its stack is installed, or why the site is broken."""


class AccusedRow(TypedDict):
    """Something that a sweep proves slow."""

    id: str
    """``NODE``, ``NODE/NIC``, ``NODE-NODE`` (a link), the name of a leaf switch (its uplinks), or
    ``LEAF-LEAF`` (the only path between two leaves)."""
    kind: Literal["node", "nic", "link", "uplink"]
    """What it is; docs/sweep.md explains each."""
    evidence: str
    """The readings that prove it, in one sentence."""
    nodes: list[str]
    """The nodes whose jobs it slows down."""


class SuspectRow(TypedDict):
    """Two nodes that the second pass should measure together; a node twice for its own links."""

    a: str
    """The suspect, or one end of a suspected link."""
    b: str
    """A node that is known to be good, or the other end."""


class SweepDocument(TypedDict):
    """What the readings of a sweep show."""

    schema: Literal["busbar-sweep/1"]
    """The schema of this document."""
    accused: list[AccusedRow]
    """What is slow."""
    suspects: list[SuspectRow]
    """What to measure again; a pair that is listed several times, so many times."""
    unmeasured: list[str]
    """Nodes, ``NODE/NIC``, ``NODE/LINK`` and pairs ``NODE-NODE`` or ``NODE-NODE/NIC`` that could
    not be measured."""
    notes: list[str]
    """What limits these results: lines that were cut off, several kinds of nodes, no band."""
    last_round: int
    """The highest round in the file; the second pass counts on from it."""
    decided: bool
    """Whether nothing was left open that only a limit can decide."""


class FoundRow(AccusedRow):
    """Something that `busbar sweep run` proves slow."""

    confirmed: bool
    """Whether it was slow again when it was measured again, a node with good nodes."""


class GoneRow(TypedDict):
    """A node that ended its part before the sweep ended."""

    node: str
    """Its name."""
    reason: str
    """How it was lost."""


class SweepRunDocument(TypedDict):
    """The verdict of a sweep."""

    schema: Literal["busbar-sweep-run/1"]
    """The schema of this document."""
    verdict: Verdict
    """Verdict of the fleet."""
    nodes: list[str]
    """The nodes of the plan."""
    median_gb_per_s: float | None
    """Median of all pairs with all NICs at once; null if nothing was measured."""
    accused: list[FoundRow]
    """What is slow."""
    suspects: list[SuspectRow]
    """Pairs that are still undecided."""
    unsteady: list[str]
    """Nodes that are slow at times, with several partners, as with packet loss; not accused."""
    wrong_data: list[str]
    """Pairs ``NODE-NODE`` that received wrong data, and ``NODE/LINK``."""
    unmeasured: list[str]
    """Nodes, ``NODE/NIC``, ``NODE/LINK`` and pairs that could not be measured."""
    gone: list[GoneRow]
    """Nodes that stopped answering."""
    stopped: str
    """Why the sweep ended early; empty if it did not."""
    notes: list[str]
    """What limits these results."""
    rounds: int
    """Rounds that were measured by this run."""
    steps: int
    """Steps of Slurm: 1 unless nodes were lost."""
    launch_s: float
    """Time from `srun` until all ranks were ready, of all steps."""
    measured_s: float
    """Time of all rounds."""
    output: str
    """Directory of plan and results."""
