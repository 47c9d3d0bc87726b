from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.vfs import FaultyDisk, MemoryDisk, RealDisk, Vfs

DISKS: dict[str, Callable[[], Vfs]] = {
    "real": RealDisk,
    "memory": MemoryDisk,
    "faulty-real": lambda: FaultyDisk(RealDisk()),
    "faulty-memory": lambda: FaultyDisk(MemoryDisk()),
}


@pytest.fixture(params=list(DISKS))
def vfs(request: pytest.FixtureRequest) -> Vfs:
    """Each kind of disk in turn."""
    return DISKS[request.param]()


@pytest.fixture
def root(vfs: Vfs, tmp_path: Path) -> str:
    """An empty directory on that disk."""
    vfs.make_dirs(str(tmp_path))
    return str(tmp_path)
