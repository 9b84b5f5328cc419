# SPDX-License-Identifier: MIT
"""The words of schedulers about jobs that they did not run, as ReFrame repeats them."""

from __future__ import annotations

from busbar.parse.submission import no_space, not_run
from tests.cases import cases


def spawned(command: str, stderr: str, code: int = 1) -> str:
    """The message of ReFrame 4.10 for a command that fails."""
    return (
        f"spawned process error: command '{command}' failed with exit code {code}:\n"
        "--- stdout ---\n--- stdout ---\n--- stderr ---\n"
        f"{stderr}\n\n--- stderr ---"
    )


@cases(
    ("message", "words"),
    [
        (
            spawned(
                "sbatch rfm_job.sh",
                "sbatch: error: invalid partition specified: labb\n"
                "sbatch: error: Batch job submission failed: Invalid partition name specified",
            ),
            "Slurm refused the job: invalid partition specified: labb; Batch job submission"
            " failed: Invalid partition name specified",
        ),
        (
            spawned(
                "sbatch rfm_job.sh",
                "sbatch: error: Batch job submission failed: Requested reservation is invalid",
            ),
            "Slurm refused the job: Batch job submission failed: Requested reservation is invalid",
        ),
        (
            spawned(
                "sbatch rfm_job.sh",
                "sbatch: error: If munged is up, restart with --num-threads=10\n"
                'sbatch: fatal: Munge encode failed: Failed to access "/run/munge/munge.socket.2"',
            ),
            "Slurm refused the job: If munged is up, restart with --num-threads=10; Munge encode"
            ' failed: Failed to access "/run/munge/munge.socket.2"',
        ),
        (spawned("sbatch -p a 'b.sh'", ""), "Slurm refused the job: sbatch printed no reason"),
        (
            spawned("qsub rfm_job.sh", "qsub: Unknown queue", 170),
            "qsub refused the job: qsub: Unknown queue",
        ),
        (
            "command 'sbatch rfm_job.sh' timed out after 60s:",
            "Slurm did not answer in time (sbatch)",
        ),
        (
            "[jobid=90] job cancelled because it was blocked due to reason: ReqNodeNotAvail,"
            " UnavailableNodes:n3",
            "the job could not start: ReqNodeNotAvail, UnavailableNodes:n3",
        ),
        (
            "OSError: [Errno 28] No space left on device: 'x'",
            "No space left on device: free some space, or choose another --output",
        ),
        (spawned("mpirun a", "sbatch: error: x"), ""),
        ("sanity error: nothing was measured", ""),
        ("", ""),
    ],
)
def test_the_scheduler_is_quoted(message: str, words: str) -> None:
    assert not_run(message) == words


def test_only_the_message_of_the_system_is_a_full_disk() -> None:
    assert no_space("cp: error writing 'a': Disk quota exceeded")
    assert not no_space("there is space left")
