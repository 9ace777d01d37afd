"""Starting, stopping and comparing real training processes."""

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from train.worker import train
from waiting import PATIENCE

from recurra.tensor_files import load_tensors, load_tree, read_json
from recurra.train import checkpoint

WORKER = Path(__file__).with_name("worker.py")
ROOT = WORKER.parents[2]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **more}


def start(folder: Path, options: dict[str, Any], **more: str) -> subprocess.Popen:
    command = [sys.executable, str(WORKER), str(folder), json.dumps(options)]
    return subprocess.Popen(command, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Forked:
    """A process of its own, forked from a server that has imported torch already: for tests that need many."""

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["train.worker", "torch._dynamo"])

    def __init__(self, folder: Path, options: dict[str, Any], **more: str):
        self.stderr = Path(tempfile.mkdtemp()) / "stderr"
        self.process = self.context.Process(target=_child, args=(str(folder), options, more, str(self.stderr)))
        self.process.start()

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.process.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("a forked run", timeout or 0)
        err = self.stderr.read_text() if self.stderr.exists() else ""
        shutil.rmtree(self.stderr.parent, ignore_errors=True)
        return "", err


def _child(folder: str, options: dict[str, Any], environment: dict[str, str], stderr: str) -> None:
    os.environ.update(environment)
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT), 2)
    train(folder, options)


Process = subprocess.Popen | Forked


def start_pair(folder: Path, options: dict[str, Any]) -> list[Forked]:
    """Two processes of one run, without a launcher in between, so that each one's exit code is seen."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    return [Forked(folder, options, **rank, **shared) for rank in ranks]


def wait_for(happened, process: Process, seconds: float = PATIENCE) -> None:
    until = time.monotonic() + seconds
    while not happened():
        if process.poll() is not None and not happened():
            raise AssertionError(f"the process ended early with {process.returncode}: {process.communicate()[1]}")
        if time.monotonic() > until:
            process.kill()
            raise AssertionError(f"nothing happened for {seconds} s: {process.communicate()[1]}")
        time.sleep(0.005)


def finish(process: Process, seconds: float = PATIENCE) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return int(process.returncode), out, err  # pyrefly: ignore


def steps_logged(folder: Path) -> int:
    """The last step in the log, which may end in the middle of a line."""
    log = folder / "log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return max([0, *(json.loads(line)["step"] for line in lines if line.endswith("}"))])


def kill_after(folder: Path, options: dict[str, Any], steps: int, start=start) -> bool:
    """Start or go on, and kill -9 once `steps` more steps are in the log; False if the run was over before.

    The process goes one step further at most, so the kill does not come too late.
    """
    newest = checkpoint.saved(folder)
    resumed_at = read_json(newest[-1] / "progress.json")["step"] if newest else 0
    before = (folder / "log.jsonl").stat().st_mtime_ns if (folder / "log.jsonl").exists() else 0
    process = start(folder, options | {"halt": steps + 1})

    def far_enough() -> bool:
        log = folder / "log.jsonl"
        begun = log.exists() and log.stat().st_mtime_ns != before
        return process.poll() is not None or (begun and steps_logged(folder) >= resumed_at + steps)

    if process.poll() is None:
        wait_for(far_enough, process)
    killed = process.poll() is None
    process.send_signal(signal.SIGKILL)
    code, _, err = finish(process)
    assert code == (-signal.SIGKILL if killed else 0), err
    return killed


def final_state(folder: Path, ranks: int = 1) -> dict[str, Any]:
    """Everything the newest checkpoint holds, but for the length of the log, whose times differ."""
    path = checkpoint.saved(folder)[-1]
    own = [load_tree(path / f"rank-{rank}.safetensors") for rank in range(ranks)]
    return {
        "model": load_tensors(path / "model.safetensors")[0],
        "best": load_tensors(path / "best.safetensors")[0],
        "shared": load_tree(path / "optimizer.safetensors"),
        "own": [{key: value for key, value in tree.items() if key != "callbacks"} for tree in own],
        "progress": read_json(path / "progress.json"),
        "log": logged(folder),
    }


def logged(folder: Path) -> list[dict[str, Any]]:
    """The steps and epochs of the log, without times."""
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [
        {k: v for k, v in record.items() if k != "seconds"}
        for record in records
        if record["event"] in ("step", "epoch")
    ]


def assert_same(left: Any, right: Any, where: str = "") -> None:
    """Equal to the last bit."""
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype, where
        assert left.shape == right.shape, where
        assert torch.equal(left, right), where
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), where
        for number, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_same(a, b, f"{where}/{number}")
    else:
        assert left == right, where
