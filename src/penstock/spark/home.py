"""A SPARK_HOME for one machine, in which Python workers start faster.

Spark puts `python/lib/pyspark.zip` of its home first in the import path of its workers. That file has no compiled
modules, so each worker compiles pyspark again: about a second of a core, and a session starts several kinds
of workers. The package that pip installed is compiled. This home has links, in the user's cache, to everything except
that file, so workers import the installed package.
"""

import os
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Final

LINKED: Final = ("bin", "data", "jars", "licenses", "sbin")


def quick_home(package: Path, cache: Path) -> Path | None:
    """The home for a pyspark installed by pip; None if it cannot be created: Spark's own is then used."""
    parts = [each for each in LINKED if (package / each).is_dir()]
    if not {"bin", "jars"} <= set(parts):
        return None
    home = cache / f"spark-{sha256(str(package).encode()).hexdigest()[:12]}"
    if (home / "jars").is_dir():
        return home
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = Path(tempfile.mkdtemp(dir=cache))
        for each in parts:
            (made / each).symlink_to(package / each)
        if home.is_symlink() or home.exists():  # its links are broken
            rmtree(home)
        try:
            made.rename(home)
        except OSError:  # another process created it
            rmtree(made)
    except OSError:
        return None
    with suppress(OSError):
        os.chmod(home, 0o700)
    return home if (home / "jars").is_dir() else None
