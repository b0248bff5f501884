"""`Facts`: what `plan.json` says about a result, under the names that the page uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from interpress.spaces.frozen import OUTPUT

_LATER = {"accuracy": None, "tokens": None, "classes": (), "scores": (), "text": "", "notes": ()}
"""What folders of earlier versions do not say about agreement."""
_HEADS, _IN_GROUPS = ":heads", ":heads-per-group"
"""What the names of spaces of attention heads contain, and those of heads in groups."""
_WITHOUT_SOURCE = "GraphModule"
"""The class of a network that was read from an exported program."""


@dataclass(frozen=True)
class Facts:
    """One result, read from its `plan.json`. Folders of earlier versions lack some parts."""

    record: Mapping[str, Any]

    @cached_property
    def extra(self) -> Mapping[str, Any]:
        """What is stored for the report alone."""
        found: Mapping[str, Any] = self.record.get("report") or {}
        return found

    @property
    def name(self) -> str:
        """The class of the network, with the folder it came from if that is known.

        A network that was read from a file without its source has the name of the file.
        """
        model = self.extra.get("model") or {}
        if model.get("onnx"):
            return self.onnx_name
        name = str(model.get("name") or self.record["original"]["class"])
        if name == _WITHOUT_SOURCE and (file := self.extra.get("weights_file")):
            return str(file[0])
        source = str(model.get("source") or "").rstrip("/").rpartition("/")[2]
        return f"{name} ({source})" if source else name

    @property
    def asked(self) -> str:
        """The budget, such as `flops=0.5`."""
        asked = self.record["asked"]
        return f"{asked['budget']}={asked['value']:g}"

    @property
    def method(self) -> str:
        """The name of the method."""
        return str(self.record["method"]["name"])

    @cached_property
    def judged(self) -> Mapping[str, Any] | None:
        """The agreement that counts: on evaluation data if there are some, else held out."""
        found = self.record.get("evaluation") or self.record["agreement"]
        return None if found is None else {**_LATER, **found}

    @property
    def is_independent(self) -> bool:
        """Whether it was measured on evaluation data; see `in_common`."""
        return self.record.get("evaluation") is not None

    @property
    def in_common(self) -> int | None:
        """How many evaluation examples are calibration examples too; None if that is not known."""
        found: int | None = (self.record.get("evaluation") or {}).get("in_common")
        return found

    @property
    def distinct(self) -> tuple[int, int] | None:
        """How many of the examples that were judged on are distinct, and their number.

        Held-out examples stand for all calibration examples. None if that is not known.
        """
        evaluation = self.record.get("evaluation")
        if evaluation is not None:
            found, number = evaluation.get("distinct"), int(evaluation["examples"])
        elif self.distilled_from is not None:  # judged on other data than the calibration data
            return None
        else:
            found = self.data.get("distinct")
            number = int(self.data.get("fitted") or 0) + int(self.data.get("held_out") or 0)
        return None if found is None else (int(found), number)

    @property
    def distilled_from(self) -> Mapping[str, Any] | None:
        """Where a distillation of the saved result came from, if there was one."""
        found: Mapping[str, Any] | None = (self.record.get("distilled") or {}).get("origin")
        return found

    @property
    def set_that_counts(self) -> str:
        """The name of the set that `distinct` is about."""
        return "evaluation" if self.is_independent else "calibration"

    @property
    def is_fitted(self) -> bool:
        """Whether it was measured on the examples that were fitted."""
        return self.judged is not None and "fitted" in self.judged["on"]

    @property
    def perplexity(self) -> tuple[float, float] | None:
        """The perplexity of both networks, if they predict tokens."""
        tokens = (self.judged or {}).get("tokens")
        if tokens is None or None in tokens["perplexity"]:
            return None
        before, after = tokens["perplexity"]
        return before, after

    def left(self, what: str) -> float:
        """Return the fraction of `flops` or `parameters` that is left."""
        before, after = self.record[what]
        return float(after) / before if before else 1.0

    @property
    def data(self) -> Mapping[str, Any]:
        """How many calibration examples there were, and their hashes."""
        found: Mapping[str, Any] = self.extra.get("data") or {}
        return found

    @property
    def run(self) -> Mapping[str, Any] | None:
        """Measured run time and memory, if they were measured."""
        found: Mapping[str, Any] | None = self.extra.get("run")
        return found

    @property
    def onnx(self) -> Mapping[str, Any] | None:
        """How the written ONNX file compares with the original one, if that is what was read."""
        found: Mapping[str, Any] | None = self.record.get("onnx")
        return found

    @property
    def onnx_name(self) -> str:
        """The name of the ONNX file that the original was read from."""
        name = str((self.extra.get("model") or {}).get("onnx") or "the ONNX file")
        return name.replace("\\", "/").rpartition("/")[2]

    @property
    def time_ratio(self) -> float | None:
        """Measured run time relative to the original; of an ONNX file, in ONNX Runtime."""
        if self.onnx is not None:
            return float(self.onnx["time"])
        if self.run is None:
            ratio = self.extra.get("latency")
            return None if ratio is None else float(ratio)
        if "ratio" in self.run:
            return float(self.run["ratio"])
        before, after = self.run["seconds"]  # an earlier version
        return float(after) / before

    @property
    def time_quartiles(self) -> tuple[float, float] | None:
        """The quartiles of the measured ratios of run times; None in earlier versions."""
        source = self.run if self.onnx is None else self.onnx
        found = (source or {}).get("quartiles")
        return None if found is None else (float(found[0]), float(found[1]))

    @property
    def output(self) -> str:
        """The name of the output that was judged, if the network has several; else empty."""
        judged = self.judged or {}
        return str(judged.get("output") or "") if judged.get("others") else ""

    @property
    def others(self) -> list[tuple[str, float | None]]:
        """The other outputs and how much each changed, the worst first; None is not finite.

        Relative to the standard deviation of the output, or the share of integers that differ.
        """
        rows = (self.judged or {}).get("others") or []
        changed = [
            (str(row["name"]), row["error"] if row["equal"] is None else 1 - row["equal"])
            for row in rows
        ]
        return sorted(changed, key=lambda one: -math.inf if one[1] is None else -one[1])

    @property
    def memory(self) -> tuple[int, int] | None:
        """Measured bytes of a run of both networks: weights and peak of activations."""
        peaks = None if self.run is None else self.run["activation_bytes"]
        if peaks is None:
            return None
        (before, after), weights = peaks, self.extra["bytes"]
        return before + weights[0], after + weights[1]

    @property
    def channels(self) -> tuple[int, int]:
        """How many channels the spaces that can shrink had, and have; heads are not among them."""
        rows = [row for row in self.record["plan"] if _HEADS not in row["name"]]
        return sum(row["before"] for row in rows), sum(row["after"] for row in rows)

    @property
    def heads(self) -> tuple[int, int] | None:
        """How many attention heads there were, and are, if they can be dropped.

        Where groups of heads can be dropped as well, their rows are left out: the rows of the heads
        in the groups say what is left of both.
        """
        rows = [row for row in self.record["plan"] if _HEADS in row["name"]]
        in_groups = {_parent(row["name"]) for row in rows if row["name"].endswith(_IN_GROUPS)}
        rows = [
            row for row in rows
            if row["name"].endswith(_IN_GROUPS) or _parent(row["name"]) not in in_groups
        ]  # fmt: skip
        return (sum(r["before"] for r in rows), sum(r["after"] for r in rows)) if rows else None

    @property
    def frozen(self) -> list[Mapping[str, Any]]:
        """Families of reasons why spaces cannot shrink; see `FrozenShare`."""
        groups = self.extra.get("frozen")
        if groups is None:  # an earlier version: reasons without shares
            reasons: dict[str, list[str]] = {}
            for name, reason in self.record["frozen"].items():
                reasons.setdefault(reason, []).append(name)
            groups = [
                {"family": reason, "remedy": "", "reason": reason, "flops": None, "spaces": names}
                for reason, names in reasons.items()
            ]
        return list(groups)

    @property
    def frozen_share(self) -> float | None:
        """The share of the FLOPs that no space can reduce."""
        shares = [group["flops"] for group in self.frozen]
        return None if None in shares else sum(shares)

    @property
    def whole(self) -> list[str]:
        """The spaces that could shrink and keep all their channels."""
        return [row["name"] for row in self.record["plan"] if row["after"] == row["before"]]

    @property
    def untrusted(self) -> dict[str, str]:
        """Of `whole`, the spaces about which the examples say too little, with the reasons."""
        reasons = self.extra.get("untrusted") or {}
        return {name: str(reasons[name]) for name in self.whole if name in reasons}

    @property
    def spared(self) -> list[str]:
        """Of `whole`, the other spaces: channels elsewhere cost less to remove."""
        return [name for name in self.whole if name not in self.untrusted]

    @property
    def only_outputs(self) -> list[str] | None:
        """The frozen spaces if all of them are outputs of the model; else None."""
        if {group["family"] for group in self.frozen} != {OUTPUT.title}:
            return None
        return [str(name) for group in self.frozen for name in group["spaces"]]


def _parent(name: str) -> str:
    """Return the name of the module that holds the layer of a space."""
    return name.partition(":")[0].rpartition(".")[0]
