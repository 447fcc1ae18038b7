"""Two machines, each in a network namespace of its own with a cable between them, train what one process trains."""

import contextlib
import json
import os
import subprocess
import sys

import pytest

from portcullis_training.fitting import checkpoint
from portcullis_training.fitting.fit import fit
from portcullis_training.runs.directory import create_run, open_run
from tests import namespaces
from tests.namespaces import Network
from tests.training.fitting.test_distributed import CONFIG, assert_alike

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(namespaces.lack() is not None, reason=str(namespaces.lack())),
]
MACHINES = ("one", "two")
NETWORK = "back"
PORT = 29500


def begin(network: Network, machine: str, run) -> "subprocess.Popen[str]":
    """The command of docs/training.md, for machines whose names do not lead to their addresses: here both have one."""
    meeting = f"{network.address(NETWORK, network.number(MACHINES[0]))}:{PORT}"
    own = network.address(NETWORK, network.number(machine))
    command = [*network.inside(machine), sys.executable, "-m", "torch.distributed.run"]
    command += ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", meeting]
    command += ["--rdzv-conf", f"is_host={machine == MACHINES[0]}", "--local-addr", own]
    command += ["-m", "portcullis_training", "fit", "--resume", str(run.directory)]
    variables = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": NETWORK}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **variables}
    )


def test_two_machines_give_the_figures_of_one(tmp_path):
    alone = fit(create_run(tmp_path / "alone", CONFIG), show_progress=False)
    run = create_run(tmp_path / "together", CONFIG)  # a directory that both machines see
    with Network(MACHINES) as network, contextlib.ExitStack() as stack:
        processes = [stack.enter_context(begin(network, machine, run)) for machine in MACHINES]
        for process in processes:
            stack.callback(process.kill)
        said = [process.communicate(timeout=280)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sum(text.count("trained 4 epochs") for text in said) == 1  # one process of all reports
    assert_alike(json.loads(open_run(run.directory).history_path.read_text()), alone)
    assert len(checkpoint.load(run.checkpoint_path).generators) == len(MACHINES)
