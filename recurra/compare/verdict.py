"""The verdict of a comparison in a sentence or two: what wins, and whether by more than the spread over seeds."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recurra.compare.leaderboard import Leaderboard, LeaderboardEntry


def verdict(board: "Leaderboard") -> str:
    """What a reader should take from the leaderboard.

    Two entries tie if their means differ by no more than the larger of their standard deviations over seeds.
    """
    cells = [entry for entry in board.entries if not entry.baseline and entry.mean is not None]
    baselines = [entry for entry in board.entries if entry.baseline and entry.mean is not None]
    if not cells:
        return "All cells failed." + (f" The best baseline is {_named(board, baselines[0])}." if baselines else "")
    best = cells[0]
    if not baselines:
        return _among_cells(board, cells)
    rival = baselines[0]
    if ties(best, rival):
        tie = f"{_named(board, best)} and the baseline {_named(board, rival)} tie"
        return f"{tie}: no cell is better than {rival.name} here.{_caution(best, rival)}"
    if _is_better(board, rival, best):
        gap = f"{_difference(board, best, rival)} better than the best cell, {_named(board, best)}"
        return f"The baseline {rival.name} wins with {board.format_score(rival)}, {gap}{_spread(best, rival)}."
    gap = f"{_difference(board, best, rival)} better than the best baseline, {_named(board, rival)}"
    return f"{_among_cells(board, cells)} {best.name} is {gap}{_spread(best, rival)}."


def ties(one: "LeaderboardEntry", other: "LeaderboardEntry") -> bool:
    """Whether the difference of two means is within the spread over seeds; without a spread, only equal means tie."""
    return abs(_mean(one) - _mean(other)) <= max(one.std or 0.0, other.std or 0.0)


def _tied(cells: "list[LeaderboardEntry]") -> "list[LeaderboardEntry]":
    """The best cell and those that tie with it."""
    return [cells[0], *(cell for cell in cells[1:] if ties(cells[0], cell))]


def _among_cells(board: "Leaderboard", cells: "list[LeaderboardEntry]") -> str:
    best, tied = cells[0], _tied(cells)
    if len(cells) == 1:
        return f"{best.name} reaches {board.format_score(best)}."
    if len(tied) == 1:
        second = cells[1]
        gap = f"{_difference(board, best, second)} better than {_named(board, second)}"
        return f"{best.name} wins with {board.format_score(best)}, {gap}{_spread(best, second)}."
    others = _list([cell.name for cell in tied[1:5]])
    more = f" and {len(tied) - 5} more" if len(tied) > 5 else ""
    tie = "ties" if len(tied) == 2 else "tie"
    first = f"{best.name} is first with {board.format_score(best)}"
    return f"{first}; {others}{more} {tie} with it within the spread over seeds."


def _spread(one: "LeaderboardEntry", other: "LeaderboardEntry") -> str:
    if one.std is None and other.std is None:
        return " (one seed each: repeat with more seeds before relying on it)"
    return ", more than the spread over seeds"


def _caution(cell: "LeaderboardEntry", baseline: "LeaderboardEntry") -> str:
    if cell.std is None and baseline.std is None:
        return " With one seed there is no spread to compare with."
    return ""


def _mean(entry: "LeaderboardEntry") -> float:
    assert entry.mean is not None  # entries that failed are left out
    return entry.mean


def _is_better(board: "Leaderboard", one: "LeaderboardEntry", other: "LeaderboardEntry") -> bool:
    return _mean(one) > _mean(other) if board.higher_is_better else _mean(one) < _mean(other)


def _difference(board: "Leaderboard", one: "LeaderboardEntry", other: "LeaderboardEntry") -> str:
    factor, digits, unit = board.unit
    gap = abs(factor * (_mean(one) - _mean(other)))
    return f"{gap:.{digits}f} points" if unit else f"{gap:.{digits}f}"


def _named(board: "Leaderboard", entry: "LeaderboardEntry") -> str:
    return f"{entry.name} ({board.format_score(entry)})"


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
