"""Owns the report: how tables, aims, figures and ratios are written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from harness.aim import Aim
from harness.plan import DISK, RAM
from harness.samples import STEADY, Sample, Samples, Spread
from harness.sides import FLOVYN_PYTHON
from harness.tables import TABLES, Table


def number(value: float) -> str:
    """Write a figure with three significant digits, thousands in full."""
    if math.isnan(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    shown = f"{value:.3g}"
    return "0" if shown in ("-0", "0") else shown


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    if spread.low == spread.high:
        return number(spread.middle)
    return f"{number(spread.middle)} ({number(spread.low)}–{number(spread.high)})"


def _count(cell: list[Sample]) -> str:
    """Write how many samples count, and what became of the others."""
    parts = [str(sum(s.counts for s in cell))]
    noisy = sum(not s.quiet for s in cell)
    failed = sum(bool(s.error) for s in cell if s.quiet)
    parts += [f"{noisy} discarded"] if noisy else []
    parts += [f"{failed} failed"] if failed else []
    return ", ".join(parts)


def _against_ours(table: Table, cell: list[Sample], ours: Spread | None) -> str:
    """Write how many times worse this row's headline is than Flovyn Python's."""
    theirs = Samples.spread(cell, table.columns[0][0])
    if theirs is None or ours is None or not theirs.middle or not ours.middle:
        return "–"
    return number(ours.middle / theirs.middle if table.more_is_better else theirs.middle / ours.middle)


def _our_form(samples: Samples, workload: str, size: int, medium: str) -> Spread | None:
    """Return the headline of our Python side at this size, in the form that compares with the peers'."""
    figure = TABLES[workload].columns[0][0]
    for form in ("", "text", "bytes", "server on PostgreSQL"):
        spread = Samples.spread(samples.of(workload, size, FLOVYN_PYTHON, form, medium), figure)
        if spread is not None:
            return spread
    return None


def _table(samples: Samples, workload: str, medium: str) -> Iterator[str]:
    table = TABLES[workload]
    rows: dict[tuple[int, str, str], list[Sample]] = {}
    for sample in samples:
        if (sample.workload, sample.medium) == (workload, medium):
            rows.setdefault((sample.size, sample.who, sample.form), []).append(sample)
    if not rows:
        return
    present = {figure for cell in rows.values() for sample in cell for figure in sample.figures}
    columns = [column for column in table.columns if column[0] in present]
    headings = [table.size, "", *(heading for _, heading in columns), "Flovyn Python is better by ×", "n"]
    yield f"**{'On disk' if medium == DISK else 'On the RAM disk'}**\n"
    yield "| " + " | ".join(headings) + " |"
    yield "|" + " --- |" * len(headings)
    for (size, who, form), cell in sorted(rows.items(), key=lambda row: row[0][0]):
        name = f"{who}, {form}" if form else who
        figures = [_cell(Samples.spread(cell, figure)) for figure, _ in columns]
        ours = _our_form(samples, workload, size, medium)
        versus = "" if who == FLOVYN_PYTHON else _against_ours(table, cell, ours)
        yield "| " + " | ".join([f"{size:,}", name, *figures, versus, _count(cell)]) + " |"
    yield ""


def _aims(samples: Samples, aims: list[Aim]) -> Iterator[str]:
    yield "## Aims\n"
    yield "| aim | on | side | limit | measured | |"
    yield "| --- | --- | --- | --- | --- | --- |"
    taking_part = {sample.who for sample in samples}
    # A run of some workloads says nothing of the others.
    workloads = {sample.workload for sample in samples}
    listed = [aim for aim in aims if aim.who in taking_part and aim.text.split()[0].lower() in workloads]
    order = {key: place for place, key in reversed(list(enumerate((aim.text, aim.medium) for aim in listed)))}
    for aim in sorted(listed, key=lambda aim: order[aim.text, aim.medium]):
        limit = f"{'≤' if aim.at_most else '≥'} {number(aim.limit)} {aim.unit}"
        measured = "–" if aim.measured is None else f"{number(aim.measured)} {aim.unit}"
        verdict = {True: "met", False: "**missed**", None: "not measured"}[aim.met]
        side = aim.who.removeprefix("Flovyn ")
        yield f"| {aim.text} | {aim.medium} | {side} | {limit} | {measured} | {verdict} |"
    if not listed:
        yield "| none of our sides took part | | | | | |"
    yield ""


def _floors(samples: Samples) -> Iterator[str]:
    """Write the one-row floor over the whole run, and how many samples it discarded."""
    yield "## The floor\n"
    yield "| | p50 µs | p99 µs | samples | discarded |"
    yield "| --- | --- | --- | --- | --- |"
    for medium, database in product((DISK, RAM), ("SQLite", "PostgreSQL")):
        here = [s for s in samples if (s.medium, s.floor) == (medium, database) and s.floor_p50_us]
        if not here:
            continue
        middle, tail = sorted(s.floor_p50_us for s in here), sorted(s.floor_p99_us for s in here)
        p50 = Spread(middle[len(middle) // 2], middle[0], middle[-1], len(here))
        p99 = Spread(tail[len(tail) // 2], tail[0], tail[-1], len(here))
        noisy = sum(not sample.quiet for sample in here)
        yield f"| {database}, {medium} | {_cell(p50)} | {_cell(p99)} | {len(here)} | {noisy} |"
    yield f"\nA sample on the disk is discarded when the p99 of its floor is over {STEADY:g} times the p50.\n"


def _failures(samples: Samples) -> Iterator[str]:
    failed: dict[tuple[str, str], int] = {}
    for s in samples:
        if s.error:
            name = f"{s.workload} {s.size:,} {s.who}{', ' + s.form if s.form else ''}, {s.medium}"
            reason = s.error.strip().splitlines()[-1][-200:]
            failed[name, reason] = failed.get((name, reason), 0) + 1
    if failed:
        yield "## Failures\n"
        yield from (f"* {name}: {count} × `{reason}`" for (name, reason), count in failed.items())
        yield ""


def render(samples: Samples, aims: list[Aim], preamble: str) -> str:
    """Return the whole report as Markdown."""
    lines = ["# Results\n", preamble, *_aims(samples, aims), *_floors(samples)]
    for workload, table in TABLES.items():
        if any(sample.workload == workload for sample in samples):
            lines += [f"## {table.title}\n", f"{table.note}\n"]
            lines += [line for medium in (DISK, RAM) for line in _table(samples, workload, medium)]
    return "\n".join([*lines, *_failures(samples)]).rstrip() + "\n"
