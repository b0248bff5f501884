"""A folder of images, with one subfolder per class."""

from pathlib import Path

from tests.cli.conftest import picture

from interpress.cli.data_files.image_folder import ImageFolder
from interpress.cli.data_options import DataOptions


def test_subfolders_are_classes(tmp_path: Path) -> None:
    for name in ("dog/1.png", "cat/deep/2.PNG", "dog/3.png", "dog/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(picture(0))
    folder = ImageFolder(DataOptions(tmp_path))
    assert folder.count == 3
    assert folder.labels is not None
    assert folder.labels.tolist() == [0, 1, 1]  # sorted by path: cat, dog, dog
    (tmp_path / "top.png").write_bytes(picture(0))
    assert ImageFolder(DataOptions(tmp_path)).labels is None
