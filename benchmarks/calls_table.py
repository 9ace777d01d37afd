"""The table of `calls_gpu.py`: which rows reach their limits, why others do not, and how all are shown."""

# Why a row is above its limit, by the profiler's times on an H200.
REASONS = {
    "rc.LayerNorm()": "programs wait for each other three times a step instead of once",
    "GRU, 3 % resets": "the device takes 2 % longer; in training the host copies the mask for both passes",
    "LSTM, lengths 8 to 256": "sorting rows in and out and marking memory as unset take 1.8 ms of a training step",
    "LSTM, both directions": "each direction has half of the processors: 1.6 µs a step instead of 1.2",
    "GRU, 3 % resets, torch.compile": "torch's wrappers around the operation take 100 µs of the host forward",
    "torch.compile: embedding, LSTM, linear": "the same, and about 400 µs in a training step; the device waits",
    "torch.compile, dynamic=True": "the same",
}


def is_met(limit: str, infer: list, train: list) -> bool:
    if limit.startswith("+"):
        most = [float(part) for part in limit.split("/")]
        return infer[0] - infer[1] <= most[0] and train[0] - train[1] <= most[1]
    if limit.endswith("ms"):
        return infer[0] <= float(limit.split()[0])
    return all(own is None or own <= float(limit) * peer for own, peer in (infer, train))


def line(row: dict) -> str:
    size = tuple(row[k] for k in "TBDH")
    if "error" in row:
        return f"{row['what']:42}{size!s:24} {row['error']}"
    if "seconds" in row:
        return f"{row['what']:42}{size!s:24} {row['seconds']:.2f} s, at most {row['limit']}"
    return f"{row['what']:42}{size!s:24}{_times(row, '')}   {row['peer']}: {_times(row, 'peer_')}   {_verdict(row)}"


def _times(row: dict, who: str) -> str:
    infer, train = row[f"{who}infer_ms"], row[f"{who}train_ms"]
    return f"{infer:.3f}" if train is None else f"{infer:.3f} / {train:.3f}"


def _verdict(row: dict) -> str:
    return f"{'' if row['met'] else 'not '}within {row['limit']}"


def table(about: dict, rows: list[dict]) -> str:
    lines = [
        "# Ordinary calls on one H200",
        "",
        f"`{about['command']}`, torch {about['torch']}, Triton {about['triton']}, cuDNN {about['cudnn']}; milliseconds"
        f" by the clock, forward / training step, medians of {about['runs']} runs, each beside its peer in turn.",
        "",
        "| call | (T, B, D, H) | recurra | beside it | limit | |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        reason = REASONS.get(row["what"], "")
        size, met = tuple(row[k] for k in "TBDH"), "met" if row["met"] else f"**not met**{reason and ': '}{reason}"
        met += "; one run" if row.get("runs") == 1 < about["runs"] else ""
        if "error" in row:
            lines.append(f"| {row['what']} | {size} | {row['error']} | | | {met} |")
        elif "seconds" in row:
            lines.append(f"| {row['what']} | {size} | {row['seconds']:.2f} s | | {row['limit']} | {met} |")
        else:
            peer = f"{row['peer']}: {_times(row, 'peer_')}"
            lines.append(f"| {row['what']} | {size} | {_times(row, '')} | {peer} | {row['limit']} | {met} |")
    return "\n".join([*lines, ""])
