"""`penstock up --brokers N`: a broker for each of a machine's cores. `penstock cluster start`, with flags of `up`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.base.settings import BadSetting
from penstock.cli.cluster_nodes import HOST, Wanted
from penstock.cli.cluster_run import start
from penstock.cli.output import Refused
from penstock.cli.wire import parse_pairs
from penstock.server.listeners import parse_address

DATA_DEFAULT = "./penstock-data"
KAFKA_PORT = 9092


def up_brokers(
    brokers: int,
    data: str | None,
    places: Mapping[str, str | None],
    config: str | None,
    settings: Sequence[str],
) -> int:
    """`--kafka` is where the first broker is, and the others have the ports after it."""
    for flag in ("--http", "--line"):
        if places[flag] not in (None, "off"):
            raise Refused(
                f"{flag} is {places[flag]!r}, expected off, or nothing: each of the brokers has a port of its own"
            )
    if places["--controller"] is not None:
        raise Refused("--controller is for one node, expected none beside --brokers")
    try:
        kafka = parse_address(places["--kafka"] or f"{HOST}:{KAFKA_PORT}", "--kafka", KAFKA_PORT)
    except BadSetting as error:
        raise Refused(str(error)) from error
    wanted = Wanted(
        brokers,
        base_port=kafka.port,
        host=kafka.host,
        with_http=places["--http"] is None,
        with_line=places["--line"] is None,
        settings=parse_pairs(list(settings), "setting"),
        config=config,
    )
    return start(Path(data or DATA_DEFAULT), wanted, is_new=True)
