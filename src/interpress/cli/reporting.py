"""The command `report`."""

from __future__ import annotations

import os
from pathlib import Path

from interpress.cli.printing import print_json
from interpress.errors import ArgumentError, StorageError
from interpress.files.tensor_file import save_text
from interpress.report.compare import Entry, comparison_page
from interpress.report.facts import Facts
from interpress.report.page import page_of
from interpress.report.verdict import verdict_of
from interpress.storage.result_folder import PAGE, read_plan

_COMPARISON = Path("comparison.html")


def report(folders: list[Path], out: Path | None, force: bool, as_json: bool) -> None:
    """Write the page of one result again, or one page that compares several."""
    several = len(folders) > 1
    target = out or (_COMPARISON if several else folders[0] / PAGE)
    if target.is_dir():
        raise ArgumentError(f"--out {target} is a folder; give the file to write")
    for folder in folders:
        if not folder.is_dir():
            raise ArgumentError(f"{folder} is not a folder; give the folders of results")
    facts = {folder: Facts(read_plan(folder)) for folder in folders}
    if len(facts) < len(folders):
        raise ArgumentError("a folder is given twice; give each folder once")
    if target.exists() and not force:
        lost = "" if several else " (examples in it are not kept: they are only in that page)"
        raise StorageError(f"{target} exists; give --out FILE, or --force to replace it{lost}")
    if several:
        entries = [
            Entry(name, facts[folder], _link(folder, target))
            for folder, name in zip(folders, _names(folders), strict=True)
        ]
        page = comparison_page(entries)
    else:
        page = page_of(facts[folders[0]].record)
    save_text(target, page, overwrite=force)
    verdicts = {str(folder): verdict_of(found) for folder, found in facts.items()}
    if as_json:
        levels = {name: verdict.level for name, verdict in verdicts.items()}
        print_json({"report": str(target), "verdicts": levels})
        return
    for name, verdict in verdicts.items():
        print(f"{name}: {verdict.headline}")
    print(f"Wrote {target}; open it in a browser", flush=True)


def _names(folders: list[Path]) -> list[str]:
    """Return the shortest names that tell the folders apart."""
    last = [folder.resolve().name for folder in folders]
    return last if len(set(last)) == len(last) else [str(folder) for folder in folders]


def _link(folder: Path, target: Path) -> str | None:
    """Return the address of a result's own page, relative to the comparison."""
    page = folder / PAGE
    if not page.is_file():
        return None
    try:
        relative = os.path.relpath(page.resolve(), target.resolve().parent)
    except ValueError:  # on another drive
        return page.resolve().as_uri()
    return Path(relative).as_posix()
