"""The command line in a job whose second process is another machine: `torchrun one_process_differs.py WHAT fit …`.

WHAT is a folder, in which process 1 works, or `raise` or `die`: what happens to process 1 in its third step.
"""

import os
import signal
import sys

from recurra.cli import main
from recurra.train.loop import Loop

what, first, step = sys.argv.pop(1), os.environ["RANK"] == "0", Loop._step
if not first and what in ("raise", "die"):

    def third(self: Loop, group, count) -> None:
        if self.run.progress.step == 2 and what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.run.progress.step == 2:
            raise OSError(5, "Input/output error", "data.csv")
        step(self, group, count)

    Loop._step = third
elif not first:
    os.chdir(what)

main()
