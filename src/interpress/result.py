"""`Result`: the smaller network with its evidence, to print, look at and save."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from interpress.checks import is_whole
from interpress.data.texts import tokenized
from interpress.distillation.inputs import Augment
from interpress.distillation.options import DistillOptions
from interpress.errors import ArgumentError
from interpress.evaluation.token_speed import TokenSpeed, token_speed
from interpress.exported_programs.write import save_exported, smaller_program
from interpress.files.tensor_file import save_text
from interpress.onnx_files.write import save_onnx
from interpress.parallel.processes import Processes
from interpress.pipeline.distilling import distill_result
from interpress.pipeline.options import as_folder
from interpress.pipeline.outcome import Outcome
from interpress.report.figure import figure_of
from interpress.report.notebook import html_tables
from interpress.report.page import written_report
from interpress.report.summary import one_line, summary_of
from interpress.storage.plan_record import plan_record
from interpress.storage.pretrained_folder import save_pretrained
from interpress.storage.result_folder import save_result
from interpress.storage.timm_folder import save_timm

if TYPE_CHECKING:
    from torch.export import ExportedProgram


class Result(Outcome):
    """A compressed network with its evidence.

    `model` is an ordinary network of the original's classes. `plan` says per space what was kept
    and how well the rest is interpolated. `agreement` is measured on held-out calibration data.
    """

    def summary(self) -> str:
        """Return what was asked, what came out and what stays whole, in at most 80 columns."""
        return summary_of(self)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return one_line(self)

    def distill(
        self,
        data: Any = None,
        *,
        minutes: float | None = None,
        steps: int | None = None,
        augment: Augment | None = None,
        tokenizer: Any = None,
        memory: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
    ) -> Result:
        """Return this result after gradient steps towards the original's outputs, without labels.

        It is never worse than this one: weights that are not better on held-out examples are not
        used, and the summary says so. Ctrl-C keeps the best weights so far.

        Args:
            data: Unlabelled examples, as for `compress`; more than were calibrated on help. None
                takes the calibration data.
            minutes: How long to train. Default: 2, unless `steps` is given.
            steps: At most this many steps.
            augment: A function from a batch of one real-valued input to a changed batch, such as
                random crops of images. Default: shifts and flips that hardly change the original's
                outputs. Real-valued inputs are also mixed in pairs.
            tokenizer: The tokenizer of a language model, if the data are a list of texts.
            memory: GiB of activations to hold for a gradient. Default: 2 on a CPU, half of the
                free memory on a GPU.
            checkpoint: A folder that keeps the state, so that a call that was ended goes on.
            progress: Whether to show progress bars; None shows them on a terminal.
        """
        asked = DistillOptions(minutes, steps, augment, memory)
        options = replace(self.options, checkpoint=as_folder(checkpoint), progress=progress)
        if data is not None and tokenizer is not None:
            data = tokenized(data, tokenizer)
        network = distill_result(self.study, self.network, data, asked, options)
        return replace(self, network=network)

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        report: bool = False,
        evaluation: Any = None,
        examples: bool = False,
        tokenizer: Any = None,
    ) -> None:
        """Write the smaller network (safetensors) and the plan (JSON) into a folder.

        `interpress.load(folder, model)` turns a freshly built original into this network. With
        `report=True` an HTML page is written too; `evaluation`, `examples` and `tokenizer` as for
        `report`. Of several processes, only the first writes.
        """
        if not Processes().is_first:
            return
        if report:
            record, page = written_report(self, evaluation, examples, tokenizer)
        else:
            record, page = plan_record(self), None
        save_result(self, record, folder, overwrite, page)

    def save_pretrained(
        self, folder: str | os.PathLike[str], *, tokenizer: Any = None, overwrite: bool = False
    ) -> None:
        """Write a folder that `from_pretrained` of transformers loads, without code of interpress.

        The config must be able to say the widths, so compress with `same_widths=True`. The
        tokenizer of the original is written too: the given one, or the one in the folder that the
        model was loaded from. Of several processes, only the first writes.
        """
        if Processes().is_first:
            save_pretrained(self, folder, tokenizer, overwrite)

    def save_onnx(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the smaller network as an ONNX file, if the original was read from one.

        It is the original file with smaller weights and sizes: names, opset, metadata and dynamic
        axes stay. `onnx` says how both compare in ONNX Runtime. Of several processes, only the
        first writes.
        """
        if Processes().is_first:
            save_onnx(self.original, self.model, path, overwrite)

    def exported_program(self) -> ExportedProgram:
        """Return the smaller network as a program, if the original was an exported program.

        Names, inputs, outputs and free sizes are those of the original program.
        """
        return smaller_program(self.original, self.model)

    def save_exported(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the smaller network as a `.pt2` file, if the original was an exported program.

        `torch.export.load` reads it. Of several processes, only the first writes.
        """
        if Processes().is_first:
            save_exported(self.original, self.model, path, overwrite)

    def save_timm(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write `pruned.txt` and weights, from which timm rebuilds the network on its own.

        timm changes only plain and depthwise convolutions, batch norms and inputs of linear
        layers. Raises if that does not give this network. Of several processes, only the first
        writes.
        """
        if Processes().is_first:
            save_timm(self, folder, overwrite)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        evaluation: Any = None,
        examples: bool = False,
        tokenizer: Any = None,
        overwrite: bool = False,
    ) -> None:
        """Write one self-contained HTML page: what was asked, what came out, and the evidence.

        Of several processes, only the first writes.

        Args:
            path: The file to write.
            evaluation: Data to measure agreement on, with labels if you have them, as for
                `interpress.agreement`. Without it, the page shows agreement on held-out calibration
                data.
            examples: Whether to put up to 24 examples whose decision changed into the page: small
                images, or tokens in context. They are your data, so the default is not to.
            tokenizer: Turns tokens into text there. Default: the one in the folder that the model
                was loaded from, or else the numbers of the tokens are shown.
            overwrite: Whether to replace an existing file.
        """
        if not Processes().is_first:
            return
        _, page = written_report(self, evaluation, examples, tokenizer)
        save_text(path, page, overwrite=overwrite)

    def speed(self, *, batch: int = 1, prompt: int = 128, tokens: int = 32) -> TokenSpeed:
        """Measure a causal language model and its original: reading a prompt, then decoding.

        The prompt is `batch` sequences of `prompt` tokens, taken from the calibration data. Then
        `tokens` tokens are decoded with the cache. Both networks run in turn where they live.
        """
        meaning = self.study.meaning
        if meaning.tokens is None:
            raise ArgumentError(
                "speed() is for models that predict the next token of their input; use latency= "
                "or time the models yourself"
            )
        for name, value in (("batch", batch), ("prompt", prompt)):
            if not is_whole(value) or value < 1:
                raise ArgumentError(f"{name}={value!r}; give a whole number of at least 1")
        example = next(iter(self.study.require_data().batches()))
        known = meaning.tokens_of(example)
        assert known is not None
        flat = known.reshape(-1)
        repeated = flat.repeat(-(-batch * prompt // len(flat)))[: batch * prompt]
        return token_speed(self.original, self.model, repeated.reshape(batch, prompt), tokens)

    def plot(self) -> Any:
        """Return the predicted trade-off, with this result marked, as a Plotly figure."""
        return figure_of(self)

    def _repr_html_(self) -> str:
        return html_tables(self)
