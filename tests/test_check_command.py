# SPDX-License-Identifier: MIT
"""``busbar check`` on this machine, healthy and with each fault, through ReFrame and real MPI."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.cases import sampled, some
from tests.files import executable
from tests.said import ran

pytestmark = pytest.mark.run
BIN = Path(sys.executable).parent
QUICK = "--seconds=0.05"


def check(output: Path, *options: str, **environment: str):
    """(exit status, JSON document, standard error) of a run on the site ``local``."""
    done = ran(
        BIN / "busbar",
        "check",
        "--site=local",
        "--json",
        "--output",
        output,
        *options,
        env={**os.environ, **environment},
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def matrix(*options: str) -> list[str]:
    """Options that run only the matrix, once, quickly, with more options of the program."""
    more = f"link_matrix.more_options={' '.join([QUICK, *options])}"
    return ["-n", "link_matrix", "--max-retries=0", "-S", more]


def causes(document) -> set[str]:
    return {cause["id"] for cause in document["causes"]}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """(Exit status, document, progress, output directory) of a run of all checks."""
    output = tmp_path_factory.mktemp("healthy")
    return *check(output, "--max-retries=0"), output


def test_healthy_machine(healthy):
    """How fast this machine is just now is no matter of the tests: bands alone may be missed."""
    status, document, progress, output = healthy
    assert status == (document["verdict"] != "pass")
    without_band = {row["verdict"] for row in document["results"] if not row["typical"]}
    assert without_band == {"pass", "unjudged"}
    assert document["site"] == "local"
    assert document["lane"] == "ucx-1.14"
    assert document["delivery"] == "wheels"
    assert document["versions"]["mpi"].startswith("Open MPI v5.0")
    assert document["versions"]["ucx"].startswith("1.14")
    assert document["versions"]["gpu_driver"] is None
    checks = {row["check"].split(" ")[0] for row in document["results"]}
    wanted = {"gpu_aware", "link_matrix", "memory", "fabric_ucx"}
    # Libfabric's test comes with the system, not with us.
    assert checks == wanted | ({"fabric_libfabric"} if shutil.which("fi_pingpong") else set())
    readings = [row for row in document["results"] if row["check"] == "link_matrix"]
    assert {(row["metric"], row["pair"], row["bytes"]) for row in readings} == {
        (metric, pair, nbytes)
        for pair in ("0->1", "1->0")
        for metric, nbytes in (("latency", 8), *(("bandwidth", n << 10) for n in (64, 1024, 4096)))
    }
    for row in readings:
        if row["metric"] == "bandwidth":
            inside = row["low"] <= row["gb_per_s"] <= row["limit"]
            assert (row["verdict"] == "pass") == inside
        assert (row["cause"] == "") == (row["verdict"] == "pass")
    line = rf"busbar: site local, lane ucx-1.14: {len(checks)} jobs\n"
    *ignored, started = progress.splitlines(keepends=True)
    assert re.fullmatch(line, started)  # one line where nobody watches
    assert all("ignoring RFM_" in each for each in ignored)
    assert json.loads((output / "results.json").read_text()) == document


def test_report_is_one_file_without_network(healthy):
    *_, output = healthy
    page = (output / "report.html").read_text()
    assert page.count("<svg") >= 2
    for outside in (" src=", "@import", "url(", "<link", "fetch(", "import("):
        assert outside not in page
    assert page.count("<script") == 1  # the tests of the pages say what it does


def test_forced_tcp_is_degraded(tmp_path):
    status, document, _ = check(tmp_path, *matrix(), UCX_TLS="tcp,self")
    assert status == 1
    assert document["verdict"] == "degraded"
    assert any("the data used tcp" in row["message"] for row in document["results"])
    assert len([row for row in document["results"] if row["typical"]]) == 8
    assert all(row["cause"] for row in document["results"] if row["verdict"] != "pass")
    assert "below-band-unexplained" not in causes(document)
    assert causes(document)


@pytest.mark.long
def test_dead_rank_fails(tmp_path):
    status, document, _ = check(tmp_path, *matrix("--inject=die"))
    assert status == 1
    assert document["verdict"] == "failed"
    assert "rank-died" in causes(document)


def test_hanging_rank_is_stopped_and_its_output_kept(tmp_path):
    status, document, _ = check(
        tmp_path, *matrix("--inject=hang"), "-S", "link_matrix.time_limit=30s"
    )
    assert status == 1
    # Other programs can keep a job from ending in time: beside many, nobody knows.
    assert document["verdict"] in ("failed", "unknown")
    assert "timeout" in causes(document)
    kept = list(tmp_path.glob("reframe/stage/**/link_matrix/rfm_job.out"))
    assert len(kept) == 1
    assert '"event": "reading"' in kept[0].read_text()
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, check=False)
    assert left.stdout == b"", "processes of the stopped job still run"


@pytest.mark.long
def test_singletons_fail(tmp_path):
    """As in a container started with a clean environment: PMIx is lost, each rank is alone."""
    gone = ran(BIN / "mpirun", "--allow-run-as-root", "-n", "1", "env", check=True).stdout
    names = [
        n for n in (line.split("=")[0] for line in gone.splitlines()) if n.startswith("PMIX_")
    ]
    wrapper = " ".join(["env", *(f"-u {name}" for name in names)])
    status, document, _ = check(tmp_path, *matrix(), "-S", f"link_matrix.wrapper={wrapper}")
    assert status == 1
    assert document["verdict"] == "failed"
    assert "singletons" in causes(document)


def test_corrupted_payload_fails(tmp_path):
    status, document, _ = check(
        tmp_path, "-n", "gpu_aware", "-S", "gpu_aware.more_options=--inject=corrupt"
    )
    assert status == 1
    assert document["verdict"] == "failed"
    assert any("bytes arrived wrong" in row["message"] for row in document["results"])


@pytest.mark.parametrize(("option", "pair"), some([("omit", "0->1"), ("omit:1", "1->0")], 2))
def test_missing_metric_fails(tmp_path, option, pair):
    status, document, _ = check(tmp_path, *matrix(f"--inject={option}"))
    assert status == 1
    assert document["verdict"] == "failed"
    (missing,) = [row for row in document["results"] if "no reading at" in row["message"]]
    assert f" {pair} H H: no reading at" in missing["message"]


@pytest.mark.long
def test_output_of_another_run_fails(tmp_path):
    wrapper = "env LD_PRELOAD=libm.so.6 BUSBAR_NONCE=6a09e667f3bcc908"
    status, document, _ = check(tmp_path, "-n", "gpu_aware", "-S", f"gpu_aware.wrapper={wrapper}")
    assert {"wrapper", "preloaded"} <= {note["id"] for note in document["notes"]}
    assert status == 1
    assert document["verdict"] == "failed"
    assert any("the output is from another run" in row["message"] for row in document["results"])


@pytest.mark.long
def test_miscounted_bytes_are_impossible(tmp_path):
    for attempt in range(3):  # on a machine that is busy, even ten times a reading may be small
        status, document, _ = check(tmp_path / str(attempt), *matrix("--inject=miscount"))
        assert status == 1
        # Beside other programs the limit, which is measured in the run, is in doubt as well.
        doubtful = ("impossible", "unknown")
        pairs = {row["pair"] for row in document["results"] if row["verdict"] in doubtful}
        if "0->1" in pairs:
            break
    assert "0->1" in pairs


def test_check_file_that_fails_to_import_fails(tmp_path, root):
    checks = with_broken_import(root, tmp_path)
    status, document, _ = check(tmp_path / "out", "-c", str(checks), "-n", "gpu_aware")
    assert status == 1
    assert document["verdict"] == "failed"
    assert any("a_module_that_is_not_there" in row["message"] for row in document["results"])


ASSERTING = """\
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function


class Echo(rfm.RunOnlyRegressionTest):
    valid_systems = valid_prog_environs = ["*"]
    executable = "echo"

    @sanity_function
    def anything(self):
        return sn.assert_true(1)


@rfm.simple_test
class first(Echo):
    @run_before("performance")
    def fail(self):
        assert self.num_tasks == 7


@rfm.simple_test
class second(Echo):
    pass
"""


def test_an_assertion_that_ends_reframe_fails_the_run(tmp_path):
    checks = tmp_path / "asserting.py"
    checks.write_text(ASSERTING)
    status, document, _ = check(tmp_path / "out", "-c", str(checks), "-n", "first|second")
    assert (status, document["verdict"]) == (1, "failed")
    (row,) = [row for row in document["results"] if row["verdict"] == "failed"]
    assert "ReFrame gave up: assertion error; 1 of 2 checks did not run" in row["message"]


def with_broken_import(root: Path, tmp_path: Path) -> Path:
    """A copy of the checks of which one file cannot be imported."""
    checks = tmp_path / "checks"
    shutil.copytree(root / "reframe_checks", checks)
    module = checks / "link_matrix.py"
    module.write_text(module.read_text() + "\nimport a_module_that_is_not_there\n")
    return checks


@sampled(
    3,
    ("options", "says"),
    [
        (["--lane=ucx-9"], "unknown lane 'ucx-9'; did you mean 'ucx-1.14' or 'ucx-current'?"),
        (["--site=no-such-site"], "no site 'no-such-site'"),
        (["--output=/proc/nowhere"], "cannot be created"),
        (["--output=/proc/version"], "cannot be created: File exists"),
        (["--output=/tmp/a b"], "--output: '/tmp/a b' has the character ' '"),
        (["-n", "link_matrx"], "no check has 'link_matrx'; did you mean 'link_matrix'?"),
        (["-n", "("], "is not a valid regular expression"),
        (["-t", "gat"], "no check has 'gat'; did you mean 'gate'?"),
        (["--require", "osuu"], "no check has 'osuu'; did you mean 'osu'?"),
        (
            ["-n", "gpu_aware_hipcc"],
            "-n gpu_aware_hipcc: no check can run here; gpu_aware_hipcc: needs an AMD GPU",
        ),
        (["-n", "gpu_aware", "-t", "full"], "-n gpu_aware -t full: no check matches"),
        (["-n", "gpu_aware", "-t", "full", "--list"], "-n gpu_aware -t full: no check matches"),
        (["-c", "/proc/driver"], "-c /proc/driver: no check matches"),
    ],
)
def test_bad_input_is_one_line(tmp_path, options, says):
    done = ran(BIN / "busbar", "check", "--output", tmp_path, *options)
    assert done.returncode == 2
    *progress, last = done.stderr.strip().splitlines()
    assert says in last
    assert all(line.startswith("busbar: ") for line in progress)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-retries=-1"], "--max-retries: must be an integer, 0 or more, got '-1'"),
        (["-c", "no-such-file.py"], "-c/--checks: 'no-such-file.py' does not exist"),
    ],
)
def test_wrong_usage_is_refused(options, says):
    done = ran(BIN / "busbar", "check", *options)
    assert done.returncode == 2
    assert says in done.stderr


@sampled(
    3, ("name", "options"), product(["valid_systems", "valid_prog_environs"], [(), ("--list",)])
)
def test_a_check_for_nothing_is_one_line(tmp_path, name, options):
    values = {"valid_systems": ["*"], "valid_prog_environs": ["*"]} | {name: []}
    lines = ["import reframe as rfm", "@rfm.simple_test", "class x(rfm.RunOnlyRegressionTest):"]
    lines += ['    executable = "true"', *(f"    {key} = {each}" for key, each in values.items())]
    (tmp_path / "x.py").write_text("\n".join(lines) + "\n")
    done = ran(
        BIN / "busbar", "check", "--site=local", "-c", tmp_path / "x.py", *options, cwd=tmp_path
    )
    last = (done.stdout + done.stderr).splitlines()[-1]
    assert f"the check has an empty {name}" in last
    assert done.returncode == (0 if options else 2)
    assert "Traceback" not in done.stderr


@pytest.fixture
def earlier(tmp_path):
    """The files of an earlier run in ``out``, which a script or a person may read."""
    names = "results.json", "report.html", "configuration.py", "reframe.json", "reframe.log"
    files = {tmp_path / "out" / name: f"earlier {name}" for name in names}
    files[tmp_path / "out/reframe/again/1-0/reframe.json"] = "{}"
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return files


@sampled(
    3,
    ("options", "says"),
    [
        ([], "the site has no ReFrame configuration"),
        (["--site=no-such-site"], "no site 'no-such-site'"),
        (["--site=local", "--image=no-such.sif"], "no-such.sif: no such file"),
        (["--site=local", "-n", "link_matrx"], "no check has 'link_matrx'"),
        (["--site=local", "-n", "gpu_aware", "-t", "full"], "no check matches"),
        (["--site=local", "-n", "gpu_aware_hipcc"], "no check can run here"),
        (["--site=local", "--max-retries=-1"], "must be an integer, 0 or more"),
        (["--site=local", "-n", "memory", "--list"], ""),
    ],
)
def test_a_refusal_or_a_list_leaves_the_earlier_run(tmp_path, root, earlier, options, says):
    site = tmp_path / "local"
    site.mkdir()
    shutil.copy(root / "site/local/site.yaml", site)
    status, document, said = check(tmp_path / "out", "--site", str(site), *options)
    assert status == (2 if says else 0)
    assert says in said
    assert not says or document["schema"] == "busbar-error/1"
    assert {path: path.read_text() for path in earlier} == earlier


@pytest.mark.long
def test_a_run_removes_the_earlier_results_before_it_measures(tmp_path, earlier):
    seen = tmp_path / "seen"
    probe = executable(tmp_path / "probe", f'ls {tmp_path}/out > {seen}\nexec "$@"')
    (tmp_path / "tmp").mkdir()
    options = ["-n", "gpu_aware", "--max-retries=0", "-S", f"gpu_aware.wrapper={probe}"]
    done = check(tmp_path / "out", *options, TMPDIR=str(tmp_path / "tmp"))
    assert done[1]["schema"] == "busbar-check/1"
    assert not {"results.json", "report.html", "reframe.json"} & {*seen.read_text().split()}
    assert not any(path.exists() and path.read_text() == old for path, old in earlier.items())
    assert not list((tmp_path / "tmp").glob("rfm-*.log")), "ReFrame's log before its configuration"


def plain_reframe(root: Path, output: Path, *options: str, **environment: str):
    """ReFrame as a user runs it, without the command ``busbar``."""
    return ran(
        *(BIN / "reframe", "-C", root / "site/local/reframe.py", "-c", root / "reframe_checks"),
        *("-r", "--prefix", output, *options),
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(("option", "shown"), [("-r", False), ("-rvvv", True)])
def test_plain_reframe_debugs_when_asked(tmp_path, root, option, shown):
    done = plain_reframe(root, tmp_path, "-n", "^no_such_check$", option)
    assert ("[ReFrame Environment]" in done.stdout) == shown


def test_plain_reframe_runs_the_same(tmp_path, root):
    done = plain_reframe(root, tmp_path)
    assert "bandwidth_0_to_1_HH_65536" in done.stdout
    failed = re.findall(r"Failing phase: (\w+)", done.stdout)
    assert set(failed) <= {"performance"}, done.stdout
    assert done.returncode == bool(failed)


@pytest.mark.long
def test_plain_reframe_fails_the_same(tmp_path, root):
    quick = f"link_matrix.more_options={QUICK}"
    done = plain_reframe(root, tmp_path, "-n", "link_matrix", "-S", quick, UCX_TLS="tcp,self")
    assert done.returncode != 0
    assert "degraded" in done.stdout
    assert "the data used tcp" in done.stdout


@pytest.mark.long
def test_plain_reframe_refuses_a_broken_check_file(tmp_path, root):
    checks = with_broken_import(root, tmp_path)
    done = ran(
        *(BIN / "reframe", "-C", root / "site/local/reframe.py", "-c", checks),
        *("-n", "gpu_aware", "-r", "--prefix", tmp_path),
    )
    assert done.returncode != 0
    assert "a_module_that_is_not_there" in done.stdout + done.stderr


def test_a_program_that_does_not_compile_fails_with_the_compilers_word(tmp_path, root):
    checks = tmp_path / "checks"
    shutil.copytree(root / "reframe_checks", checks)
    with (checks / "src" / "gpu_aware.cpp").open("a") as source:
        source.write("this is no C++;\n")
    status, document, _ = check(tmp_path / "out", "-c", str(checks), "-n", "gpu_aware")
    assert status == 1
    assert document["verdict"] == "failed"
    messages = {row["check"]: row["message"] for row in document["results"]}
    assert "error: " in messages["BuildGpuAware"]
    assert "a check that it depends on failed" in messages["gpu_aware"]
