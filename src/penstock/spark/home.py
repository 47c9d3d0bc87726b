"""A home for Spark on one machine, in which its Python workers start sooner.

Spark puts `python/lib/pyspark.zip` of its home before everything else that its workers import from. In that file
nothing is compiled, so each worker compiles pyspark anew: about a second of a core, and a session starts several kinds
of workers. The package that pip has installed is compiled. A home with everything but that file has
the workers take pyspark from there: links, in the user's cache.
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
    """The home for a pyspark that pip has installed; None where it cannot be made, and Spark's own serves."""
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
        if home.is_symlink() or home.exists():  # its links lead nowhere any more
            rmtree(home)
        try:
            made.rename(home)
        except OSError:  # another process was quicker
            rmtree(made)
    except OSError:
        return None
    with suppress(OSError):
        os.chmod(home, 0o700)
    return home if (home / "jars").is_dir() else None
