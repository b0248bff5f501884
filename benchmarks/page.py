"""Write docs/evidence.md and docs/coverage.md from their templates and the result files.

    python -m benchmarks page

Every measured figure on these pages is read from a result file. In the templates, `{{name}}` on its
own line stands for all tables and plots of a result file, and `{{name: question}}` for a single
figure (see `benchmarks.figures`). `{{published}}` stands for the paper's own figures. Lines between
`{{if name}}` and `{{end}}` are shown if the result file `name.json` exists. Tables are folded, the
newest version first, and name the version of interpress that they were measured with. The command
also rewrites the `.md` file beside every result file.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import coverage, linalg, onnx_files, provenance, published, runner
from benchmarks.experiment import RESULTS, Report, experiments
from benchmarks.figures import figure
from benchmarks.figures import headline as headline
from benchmarks.language import command as language
from benchmarks.preserve import tables as preserve_tables

ROOT = Path(__file__).parents[1]
TEMPLATES = {
    ROOT / "docs" / "evidence.md": ROOT / "benchmarks" / "evidence.md",
    ROOT / "docs" / "coverage.md": ROOT / "benchmarks" / "coverage.md",
}
"""The pages and their templates."""
EVIDENCE = ROOT / "docs" / "evidence.md"
_SHOWN = re.compile(
    r"^(<!-- This table is benchmarks\.page\.result_markdown of benchmarks/results/([\w-]+)\.json;"
    r" .*-->\n\n)(?:(?:\|.*\n)+\n)?",
    re.MULTILINE,
)
_CONDITION = re.compile(r"^\{\{if ([\w-]+)\}\}\n(.*?)^\{\{end\}\}\n+", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^\{\{([\w-]+)\}\}$", re.MULTILINE)
_FIGURE = re.compile(r"\{\{([\w-]+): ([^}]*)\}\}")


def render(template: Path) -> str:
    """Return the text of a page."""
    text = _CONDITION.sub(lambda match: match[2] * bool(_files(match[1])), template.read_text())
    text = _BLOCK.sub(lambda match: block(match[1]), text)
    return _FIGURE.sub(lambda match: figure(match[1], match[2]), text)


def with_tables(text: str) -> str:
    """Return a page with the table of a result file after every comment that names the file."""

    def shown(match: re.Match[str]) -> str:
        path = RESULTS / f"{match[2]}.json"
        return f"{match[1]}{result_markdown(path)}\n" if path.is_file() else match[0]

    return _SHOWN.sub(shown, text)


def block(name: str) -> str:
    """Return the tables and plots of a result file, newest version first."""
    if name == "published":
        return published.markdown().rstrip("\n")
    return "\n\n".join(
        f"<details>\n<summary>{name}: tables and plots, measured with interpress "
        f"{' and '.join(provenance.versions_of(path))}</summary>\n\n{_tables(path)}\n\n</details>"
        for path in _files(name)
    )


def _files(name: str) -> list[Path]:
    """Return the result files of this name, newest version first."""
    older = sorted(RESULTS.glob(f"older/*/{name}.json"), reverse=True)
    return [path for path in (RESULTS / f"{name}.json", *older) if path.is_file()]


def _tables(path: Path) -> str:
    """Return the tables and plots of one result file, without the trailing newline."""
    name, folder = path.stem, path.relative_to(RESULTS.parents[1]).parent
    if name not in experiments():
        report = json.loads(path.read_text())
        if isinstance(report, list):  # its own first line names version and machine
            return result_markdown(path).rstrip("\n")
        versions = " and ".join(provenance.versions_of(path))
        head = f"interpress {versions}, {report['machine']}:\n\n"
        return head + result_markdown(path).rstrip("\n")
    report = Report.load(path)
    plots = sorted(path.parent.glob(f"{name}.svg")) + sorted(path.parent.glob(f"{name}-*.svg"))
    images = "".join(f"\n![{plot.stem}](../{folder / plot.name})\n" for plot in plots)
    source = f"Result file: `{folder / path.name}`, written by\n\n"
    tables = experiments()[name].tables(report)
    return f"{source}{provenance.heading(report)}\n{tables}{images}".rstrip("\n")


def result_markdown(path: Path) -> str:
    """Return the text of the `.md` file beside a result file."""
    kind, _, variant = path.stem.partition("-")
    modules = experiments()
    if kind in modules:
        return runner.markdown(modules[kind], Report.load(path))
    report = json.loads(path.read_text())
    if kind == "preserve":
        return preserve_tables.markdown(variant.split("-")[0], report)
    writers: dict[str, Callable[[Any], str]] = {
        "coverage": coverage.markdown, "linalg": linalg.markdown, "language": language.markdown,
        "onnx": onnx_files.markdown,
    }  # fmt: skip
    return writers[kind](report)


def main(arguments: list[str] | None = None) -> None:
    """Write the pages, the tables beside the result files, and those that a comment names."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)
    for path in sorted(RESULTS.glob("*.json")):
        path.with_suffix(".md").write_text(result_markdown(path))
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text()
        if with_tables(text) != text:
            page.write_text(with_tables(text))
            print(f"wrote {page}")
    for page, template in TEMPLATES.items():
        page.write_text(render(template))
        print(f"wrote {page}")
