"""What became of each row: the records of real runs, and the table made from them.

Owns: the records in the cache and docs/matrix.md. Promises: a cell is filled only from the record
of a run. Never: runs anything.
"""

import datetime
import json
import platform

from . import fetch
from .rows import ROOT

PAGE = ROOT / "docs" / "matrix.md"
START, END = "<!-- table: written by tools/matrix -->", "<!-- end of the table -->"


def path_of(row):
    return fetch.CACHE / "results" / f"{row.name}.json"


def record(row, **facts):
    """Keeps what a run found out."""
    path = path_of(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    facts["date"] = datetime.date.today().isoformat()
    facts["system"] = system()
    path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def recorded(row):
    try:
        return json.loads(path_of(row).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def system():
    name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return f"{name}, {platform.machine()}"


def cells(row):
    """Row, server, built, tests, module."""
    facts = recorded(row)
    server = facts.get("server") or f"{row.distribution} {row.core}"
    if not row.default and not facts:
        return [row.name, server, "left out", "", row.reason]
    if not facts:
        return [row.name, server, "not run", "", "no record of a run"]
    if facts.get("error"):
        return [row.name, server, facts.get("built", "no"), facts.get("smoke", "no"),
                facts["error"]]
    what = row.note or ""
    if facts.get("bytes"):
        size = f"{facts['bytes'] / 1e6:.1f} MB, glibc {facts['glibc']}"
        what = f"{size}; {what}" if what else size
    return [row.name, server, facts["built"], facts["smoke"], what]


HEAD = ["row", "server", "module built", "tests on it", "module (stripped), remarks"]


def lines(rows):
    """The table in Markdown."""
    out = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    out += ["| " + " | ".join(cells(row)) + " |" for row in rows.values()]
    return out


def show(rows):
    """The table for a terminal."""
    table = [HEAD] + [cells(row) for row in rows.values()]
    widths = [max(len(line[n]) for line in table) for n in range(len(HEAD) - 1)]
    for line in table:
        fixed = "  ".join(cell.ljust(width) for cell, width in zip(line, widths))
        print(f"{fixed}  {line[-1]}".rstrip())


def write(rows):
    """Renews the table in docs/matrix.md; returns whether it changed."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    runs = sorted({(f["date"], f["system"]) for f in map(recorded, rows.values()) if f})
    when = "; ".join(f"{date} on {where}" for date, where in runs)
    body = "\n".join([START, "", f"Runs: {when}.", "", *lines(rows), "", END])
    new = before + body + after
    if new != text:
        PAGE.write_text(new, encoding="utf-8")
    return new != text
