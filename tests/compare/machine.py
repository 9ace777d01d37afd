"""A machine of a shared comparison, as a process: `machine.py queue URL FOLDER` or `machine.py compare JSON`.

A machine that is only slow must not count as lost. So a silent machine is lost once the file `lost` is in the parent
folder: the test puts it there after a kill.
"""

import json
import sys
import threading
import time
from pathlib import Path

from recurra.compare import compare, shared_run
from recurra.compare.plan import WorkItem
from recurra.compare.run_folder import RunFolder

ITEMS = [WorkItem(f"cell{k}", seed) for seed in range(2) for k in range(7)]
LOST = Path("..", "lost")
shared_run.HEARTBEAT_SECONDS, shared_run.TIMEOUT_SECONDS = 1.0, 3600.0


def shorten_the_timeout() -> None:
    while not LOST.exists():
        time.sleep(0.1)
    shared_run.TIMEOUT_SECONDS = 6.0


def claim_all(url: str, folder: Path) -> list[str]:
    """Claim and finish items as fast as possible; every third is put back once."""
    queue = shared_run.SharedWorkQueue(RunFolder(folder), ITEMS, shared_run.open_storage(url), "queue")
    done, released = [], set()
    while not queue.is_complete():
        while (item := queue.claim()) is not None:
            if ITEMS.index(item) % 3 == 0 and item not in released:
                released.add(item)
                queue.release(item)
                continue
            done.append(item.key)
            queue.finish(item, {"name": item.name, "kind": item.kind, "seed": item.seed, "score": 0.5})
        queue.last_poll = 0.0
        queue.refresh()
    return done


if __name__ == "__main__":
    threading.Thread(target=shorten_the_timeout, daemon=True).start()
    if sys.argv[1] == "queue":
        print(json.dumps(claim_all(sys.argv[2], Path(sys.argv[3]))))
    else:
        print(json.dumps(compare(**json.loads(sys.argv[2])).to_json()))
