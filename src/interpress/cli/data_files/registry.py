"""The table of data files, by suffix."""

from __future__ import annotations

from interpress.cli.data_files.data_file import DataFile
from interpress.cli.data_files.image_folder import IMAGE_SUFFIXES, ImageFolder
from interpress.cli.data_files.running_text import RunningText
from interpress.cli.data_options import DataOptions
from interpress.errors import DataError, StorageError
from interpress.registry import Registry

DATA_FILES: Registry[type[DataFile]] = Registry("data file", "interpress.cli.data_files.suffixes")
data_file = DATA_FILES.register
_SAME_AS = {"text": "txt"}  # other spellings of a suffix


def open_data_file(options: DataOptions) -> DataFile:
    """Return the examples at `options.path`."""
    kind = kind_of_file(options)
    if not kind.holds_images:
        options.check_no_image_options()
    file = kind(options)
    if file.count == 0:
        raise DataError(f"{options.path} holds no examples; {kind.if_empty}")
    return file


def kind_of_file(options: DataOptions) -> type[DataFile]:
    """Return the class that reads `options.path`."""
    path = options.path
    if not path.exists():
        raise StorageError(f"{path} does not exist; give the path of your data")
    suffix = path.suffix.lower()
    name = _SAME_AS.get(suffix[1:], suffix[1:])
    if options.text is not None:
        if not path.is_file():
            raise StorageError(f"{path} is not a file; give one file of text with --text")
        return RunningText
    if path.is_dir():
        return ImageFolder
    if name in DATA_FILES:
        return DATA_FILES[name]
    if suffix in IMAGE_SUFFIXES:
        raise DataError(f"{path} is one image; give a folder of images")
    suffixes = ", ".join(f".{name}" for name in DATA_FILES)
    raise DataError(f"{path} cannot be read; give a folder of images, or a file: {suffixes}")
