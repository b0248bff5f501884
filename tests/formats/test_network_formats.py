"""Every kind of file is found by its path, and written beside the plan."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.exported_programs.networks import Convolutional, exported, saved

from interpress.formats.network_formats import (
    FORMAT_FILES,
    FORMATS,
    as_network,
    is_network_file,
    write_in_format,
)


def test_every_format_has_its_own_files() -> None:
    assert len(set(FORMAT_FILES)) == len(FORMAT_FILES)
    for kind in FORMATS:
        path = kind.files[0]
        assert [other.name for other in FORMATS if other.accepts(path)] == [kind.name]


def test_networks_are_left_as_they_are(tmp_path: Path) -> None:
    model = Convolutional()
    assert as_network(model) is model
    assert not is_network_file(model)
    assert not is_network_file("nets.py:Net")
    assert as_network("folder") == "folder"
    write_in_format(model, model, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_network_is_written_in_the_form_it_came_in(tmp_path: Path) -> None:
    path = saved(exported(Convolutional(), torch.randn(4, 3, 4, 4)), tmp_path)
    network = as_network(path)
    (tmp_path / "out").mkdir()
    write_in_format(network, network, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["model.pt2"]
