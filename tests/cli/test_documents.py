"""The commands of docs/cli.md run word for word, on part of the data."""

import shlex
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.cli.conftest import Shell, picture

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text()
SHARED = ROOT.parent / "shared"


def _commands() -> list[list[str]]:
    block = PAGE.split("```sh\n")[1].split("```")[0]
    return [shlex.split(line)[1:] for line in block.splitlines()]


def test_the_documented_commands_run(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    task = tmp_path / "task"
    task.mkdir()
    monkeypatch.chdir(task)
    Path("nets.py").write_text(PAGE.split("```python\n")[1].split("```")[0])
    trained, images = (
        SHARED / "models" / "vgg16-cifar10.safetensors",
        SHARED / "data" / "cifar10" / "test.parquet",
    )
    real = trained.exists() and images.exists()
    if real:
        Path(trained.name).symlink_to(trained)
        parquet.write_table(parquet.read_table(images).slice(0, 700), "test.parquet")
    else:  # the same commands with an untrained network
        namespace: dict[str, type[torch.nn.Module]] = {}
        exec(Path("nets.py").read_text(), namespace)
        state = namespace["VGG16"]().state_dict()
        save_file({n: t.contiguous() for n, t in state.items()}, "vgg16-cifar10.safetensors")
        cells = [{"bytes": picture(index, 32)} for index in range(700)]
        table = pa.table({"img": cells, "label": [i % 10 for i in range(700)]})
        parquet.write_table(table, "test.parquet")
    commands = _commands()
    assert [words[0] for words in commands] == ["inspect", "compress", "evaluate"]
    for words in commands:
        assert shell(*words) == 0, shell.err
    assert "report.html" in " ".join(path.name for path in Path("half").iterdir())
    if real:
        assert float(shell.out.split("%")[0]) > 93
