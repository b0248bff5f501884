"""ATOM3D's ligand-binding affinity data (LBA) from its published LMDB files, as voxel grids.

Each of `train`, `val` and `test` is an LMDB with the keys `num_examples`, `serialization_format`,
and one gzipped entry (JSON or msgpack) per example. Tables of atoms are stored as columns and rows.
Pickled entries are rejected, because reading a pickle executes code from the file.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.experiment import ExperimentError, Row

ELEMENTS = ("H", "C", "O", "N", "F")
_COLUMNS = ("element", "x", "y", "z")


class Complex(NamedTuple):
    """The atoms of a pocket and its ligand, and their binding affinity."""

    elements: list[str]
    positions: Tensor
    """(atoms, 3), in Angstrom."""
    centre: Tensor
    """The centre of the ligand."""
    affinity: float
    """-log K, the quantity to predict."""


def read_complexes(path: Path, limit: int | None = None) -> list[Complex]:
    """Return the examples of one LMDB folder."""
    try:
        import lmdb
    except ImportError as problem:
        raise ExperimentError("reading LMDB files needs the package lmdb; install it") from problem
    if not path.exists():
        raise ExperimentError(f"{path} does not exist; give the folder with train, val and test")
    environment = lmdb.open(str(path), readonly=True, lock=False, subdir=path.is_dir())
    with environment, environment.begin() as transaction:
        count, kind = (transaction.get(key) for key in (b"num_examples", b"serialization_format"))
        if count is None or kind is None:
            raise ExperimentError(f"{path} is not an ATOM3D data set: it has no num_examples")
        numbers = range(int(count) if limit is None else min(limit, int(count)))
        return [_complex(_entry(transaction, number, kind.decode(), path)) for number in numbers]


def _entry(transaction: Any, number: int, kind: str, path: Path) -> Row:
    packed = transaction.get(str(number).encode())
    if packed is None:
        raise ExperimentError(f"{path} has no example {number}; download it again")
    raw = gzip.decompress(packed)
    if kind == "json":
        return json.loads(raw)
    if kind == "msgpack":
        try:
            import msgpack
        except ImportError as problem:
            raise ExperimentError(f"{path} is stored as msgpack; install msgpack") from problem
        return msgpack.unpackb(raw)
    raise ExperimentError(f"{path} is stored as {kind!r}; download the JSON version")


def _complex(entry: Row) -> Complex:
    pocket, ligand = (_atoms(entry[key]) for key in ("atoms_pocket", "atoms_ligand"))
    positions = torch.cat([pocket[1], ligand[1]])
    centre = ligand[1].mean(0)
    return Complex(pocket[0] + ligand[0], positions, centre, float(entry["scores"]["neglog_aff"]))


def _atoms(stored: Row) -> tuple[list[str], Tensor]:
    """Return the elements and positions of a table of atoms."""
    column = {name: stored["columns"].index(name) for name in _COLUMNS}
    rows = stored["data"]
    elements = [str(row[column["element"]]) for row in rows]
    positions = [[float(row[column[axis]]) for axis in "xyz"] for row in rows]
    return elements, torch.tensor(positions, dtype=torch.float32).reshape(-1, 3)


def voxels(
    molecule: Complex, radius: float = 20.0, generator: np.random.Generator | None = None
) -> Tensor:
    """Return the atoms per cubic Angstrom around the ligand: (elements, size, size, size).

    With a generator, the complex is rotated at random.
    """
    positions = (molecule.positions - molecule.centre).double().numpy()
    if generator is not None:
        from scipy.spatial.transform import Rotation

        positions = Rotation.random(random_state=generator).apply(positions)
    size = int(2 * radius) + 1
    cells = np.floor(positions + size / 2).astype(int)
    element = np.array([ELEMENTS.index(e) if e in ELEMENTS else -1 for e in molecule.elements])
    inside = ((cells >= 0) & (cells < size)).all(1) & (element >= 0)
    grid = np.zeros((len(ELEMENTS), size, size, size), dtype=np.float32)
    np.add.at(grid, (element[inside], *cells[inside].T), 1.0)
    return torch.from_numpy(grid)


def write_complexes(path: Path, entries: Iterable[Row]) -> None:
    """Write a data set in the published format; `entries` have the layout of stored ones."""
    import lmdb

    stored = list(entries)
    names = {entry["id"]: number for number, entry in enumerate(stored)}
    environment = lmdb.open(str(path), map_size=2**28)
    with environment, environment.begin(write=True) as transaction:
        for number, entry in enumerate(stored):
            transaction.put(str(number).encode(), gzip.compress(json.dumps(entry).encode()))
        transaction.put(b"num_examples", str(len(stored)).encode())
        transaction.put(b"serialization_format", b"json")
        transaction.put(b"id_to_idx", json.dumps(names).encode())


def random_entries(count: int, seed: int) -> list[Row]:
    """Return random complexes whose affinity grows with the nitrogen atoms near the ligand."""
    generator = np.random.default_rng(seed)
    entries = []
    for number in range(count):
        pocket = _random_atoms(generator, 60, 7.0)
        nearby_nitrogen = sum(row[0] == "N" and np.linalg.norm(row[1:]) < 5 for row in pocket)
        entries.append({
            "id": f"random-{number}",
            "atoms_pocket": {"columns": list(_COLUMNS), "data": pocket},
            "atoms_ligand": {"columns": list(_COLUMNS), "data": _random_atoms(generator, 12, 2.0)},
            "scores": {"neglog_aff": 4 + 0.5 * nearby_nitrogen},
        })  # fmt: skip
    return entries


def _random_atoms(generator: np.random.Generator, count: int, spread: float) -> list[list[Any]]:
    elements = generator.choice(ELEMENTS[:4], count)
    positions = generator.normal(0, spread / 2, (count, 3))
    return [
        [str(element), *map(float, position)]
        for element, position in zip(elements, positions, strict=True)
    ]
