"""Errors and warnings of training runs; each says at which step, and what to resume from."""

import signal
from pathlib import Path

from recurra.errors import RecurraError


class CheckpointError(RecurraError):
    """A checkpoint cannot be written, or a folder is not a valid checkpoint.

    **Example**

        >>> try:
        ...     rc.train.load_weights(rc.GRU(2, 4), "no-such-run")
        ... except rc.train.CheckpointError as error:
        ...     print(error)
        no-such-run: no checkpoint here; a run's folder holds folders named checkpoint-…
    """

    def __init__(self, path: str | Path, problem: str):
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = Path(path), problem

    def __reduce__(self):
        return type(self), (self.path, self.problem)


class MismatchError(CheckpointError):
    """A valid checkpoint of another model, optimizer or number of processes.

    **Example**

        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
        >>> _ = rc.train.fit(rc.train.Predictor(rc.GRU(2, 4), 2), data, epochs=1, checkpoints="run", progress=False)
        >>> try:
        ...     rc.train.fit(rc.train.Predictor(rc.GRU(2, 8), 2), data, epochs=1, checkpoints="run", progress=False)
        ... except rc.train.MismatchError as error:
        ...     print(error.problem)
        another model: got 'head.V' of shape (2, 4), expected (2, 8), as in the model
    """


class RunInUseError(CheckpointError):
    """Another process trains in the folder.

    **Example**

        >>> error = rc.train.RunInUseError("run", "process 4711 on this machine")
        >>> print(error)
        run: in use by process 4711 on this machine; wait until it ends, or choose another folder
    """

    def __init__(self, path: str | Path, owner: str):
        super().__init__(path, f"in use by {owner}; wait until it ends, or choose another folder")
        self.owner = owner

    def __reduce__(self):
        return type(self), (self.path, self.owner)


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written or read; an older one remains.

    **Example**

        >>> import warnings
        >>> from pathlib import Path
        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
        >>> model = rc.train.Predictor(rc.GRU(2, 4), 2)
        >>> _ = rc.train.fit(model, data, epochs=2, checkpoints="run", progress=False)
        >>> _ = sorted(Path("run").glob("checkpoint-*"))[-1].joinpath("model.safetensors").write_bytes(b"damaged")
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = rc.train.load_weights(model, "run", "last")
        >>> [each.category.__name__ for each in caught]
        ['CheckpointWarning']
    """


class LogWarning(UserWarning):
    """The log file cannot be written; later lines are missing.

    **Example**

        >>> import warnings
        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     log = rc.train.JsonLines(".")  # a folder
        ...     _ = rc.train.fit(rc.train.Predictor(rc.GRU(2, 4), 2), data, epochs=1, callbacks=[log], progress=False)
        >>> [each.category.__name__ for each in caught]
        ['LogWarning']
    """


class NonFiniteError(RecurraError, ArithmeticError):
    """The loss or a gradient is not finite. The weights are those before this step.

    **Example**

        >>> data = rc.data.SequenceSet.from_arrays([torch.ones(3, 2)], [torch.full((3, 1), 1e38)], "transduction")
        >>> model = rc.train.Predictor(rc.GRU(2, 4), 1)
        >>> try:
        ...     rc.train.fit(model, data, epochs=1, progress=False)
        ... except rc.train.NonFiniteError as error:
        ...     print(error)
        step 1: the loss is not finite; first seen in the loss function; sequences 0
    """

    def __init__(self, step: int, quantity: str, layer: str, ids: list[int]):
        shown = ", ".join(map(str, ids[:32])) + (", …" if len(ids) > 32 else "")
        super().__init__(f"step {step}: the {quantity} is not finite; first seen in {layer}; sequences {shown}")
        self.step, self.quantity, self.layer, self.ids = step, quantity, layer, ids

    def __reduce__(self):
        return type(self), (self.step, self.quantity, self.layer, self.ids)


class OutOfMemoryError(RecurraError, MemoryError):
    """A batch does not fit into memory, not even in small parts.

    **Example**

        >>> issubclass(rc.train.OutOfMemoryError, MemoryError)
        True
    """


class RankError(RecurraError, RuntimeError):
    """Another process of this run has ended or does not answer.

    **Example**

        >>> issubclass(rc.train.RankError, RuntimeError)
        True
    """


class OtherProcessError(RankError):
    """Another process of this run has failed; it raises the reason."""


class Interrupted(SystemExit):
    """SIGTERM arrived, and a checkpoint was saved if possible. Uncaught, the script exits with 128 + the signal.

    **Example**

        >>> import signal
        >>> from pathlib import Path
        >>> print(rc.train.Interrupted(signal.SIGTERM, step=120, checkpoint=Path("run")))
        SIGTERM after step 120: saved run; the same call resumes there
    """

    def __init__(self, signum: int, step: int, checkpoint: Path | None):
        super().__init__(128 + signum)
        self.signum, self.step, self.checkpoint = signal.Signals(signum), step, checkpoint

    def __reduce__(self):
        return type(self), (int(self.signum), self.step, self.checkpoint)

    def __str__(self) -> str:
        saved = f"saved {self.checkpoint}; the same call resumes there" if self.checkpoint else "nothing was saved"
        return f"{self.signum.name} after step {self.step}: {saved}"


class KeyboardInterrupted(Interrupted, KeyboardInterrupt):
    """Ctrl-C arrived: an `Interrupted` that `except KeyboardInterrupt` catches, with exit code 130.

    **Example**

        >>> import signal
        >>> stopped = rc.train.KeyboardInterrupted(signal.SIGINT, step=120, checkpoint=None)
        >>> print(stopped)
        SIGINT after step 120: nothing was saved
        >>> isinstance(stopped, KeyboardInterrupt), stopped.code
        (True, 130)
    """
