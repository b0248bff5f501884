"""ATOM3D's ligand-binding data (LBA) from its published LMDB files, as voxel grids.

Each of `train`, `val` and `test` is an LMDB: `num_examples`, `serialization_format` and one gzipped
entry per number, JSON or msgpack. Tables of atoms are stored as columns and rows. Entries that are
pickles are refused: reading one runs whatever is in it.
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
    """Atoms of a pocket and its ligand, and how strongly they bind."""

    elements: list[str]
    positions: Tensor
    """(atoms, 3) in Angstrom."""
    centre: Tensor
    """Of the ligand."""
    affinity: float
    """-log K."""


def read_complexes(path: Path, limit: int | None = None) -> list[Complex]:
    """The examples of one LMDB folder."""
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
            raise ExperimentError(f"{path} is no ATOM3D data set: it has no num_examples")
        wanted = range(int(count) if limit is None else min(limit, int(count)))
        return [_complex(_entry(transaction, number, kind.decode(), path)) for number in wanted]


def _entry(transaction: Any, number: int, kind: str, path: Path) -> Row:
    packed = transaction.get(str(number).encode())
    if packed is None:
        raise ExperimentError(f"{path} lacks example {number}; fetch it again")
    raw = gzip.decompress(packed)
    if kind == "json":
        return json.loads(raw)
    if kind == "msgpack":
        try:
            import msgpack
        except ImportError as problem:
            raise ExperimentError(f"{path} is stored as msgpack; install msgpack") from problem
        return msgpack.unpackb(raw)
    raise ExperimentError(f"{path} is stored as {kind!r}; fetch the JSON edition, which is safe")


def _complex(entry: Row) -> Complex:
    pocket, ligand = (_atoms(entry[key]) for key in ("atoms_pocket", "atoms_ligand"))
    positions = torch.cat([pocket[1], ligand[1]])
    centre = ligand[1].mean(0)
    return Complex(pocket[0] + ligand[0], positions, centre, float(entry["scores"]["neglog_aff"]))


def _atoms(stored: Row) -> tuple[list[str], Tensor]:
    """A table of atoms as elements and positions."""
    place = {name: stored["columns"].index(name) for name in _COLUMNS}
    rows = stored["data"]
    elements = [str(row[place["element"]]) for row in rows]
    positions = [[float(row[place[axis]]) for axis in "xyz"] for row in rows]
    return elements, torch.tensor(positions, dtype=torch.float32).reshape(-1, 3)


def voxels(
    one: Complex, radius: float = 20.0, generator: np.random.Generator | None = None
) -> Tensor:
    """(elements, size, size, size): atoms per cubic Angstrom around the ligand, turned at random
    where a generator is given."""
    positions = (one.positions - one.centre).double().numpy()
    if generator is not None:
        from scipy.spatial.transform import Rotation

        positions = Rotation.random(random_state=generator).apply(positions)
    size = int(2 * radius) + 1
    cells = np.floor(positions + size / 2).astype(int)
    kind = np.array([ELEMENTS.index(e) if e in ELEMENTS else -1 for e in one.elements])
    inside = ((cells >= 0) & (cells < size)).all(1) & (kind >= 0)
    grid = np.zeros((len(ELEMENTS), size, size, size), dtype=np.float32)
    np.add.at(grid, (kind[inside], *cells[inside].T), 1.0)
    return torch.from_numpy(grid)


def write_complexes(path: Path, entries: Iterable[Row]) -> None:
    """A data set in the published format; `entries` are as they are read."""
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


def made_up(count: int, seed: int) -> list[Row]:
    """Random atoms around a random ligand; the more nitrogen near it, the stronger it binds."""
    generator = np.random.default_rng(seed)
    entries = []
    for number in range(count):
        pocket = _random_atoms(generator, 60, 7.0)
        near = sum(row[0] == "N" and np.linalg.norm(row[1:]) < 5 for row in pocket)
        entries.append({
            "id": f"made-{number}",
            "atoms_pocket": {"columns": list(_COLUMNS), "data": pocket},
            "atoms_ligand": {"columns": list(_COLUMNS), "data": _random_atoms(generator, 12, 2.0)},
            "scores": {"neglog_aff": 4 + 0.5 * near},
        })  # fmt: skip
    return entries


def _random_atoms(generator: np.random.Generator, count: int, spread: float) -> list[list[Any]]:
    kinds = generator.choice(ELEMENTS[:4], count)
    where = generator.normal(0, spread / 2, (count, 3))
    return [[str(kind), *map(float, place)] for kind, place in zip(kinds, where, strict=True)]
