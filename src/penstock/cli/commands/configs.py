"""`penstock configs`: shows and changes settings of topics and brokers."""

from typing import Annotated, NamedTuple

import typer

from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, Server, connected, parse_pairs
from penstock.cli.options import Json
from penstock.cli.output import Refused, print_json, print_table
from penstock.client.admin import (
    ConfigChange,
    ConfigEntry,
    ConfigSource,
    Resource,
    ResourceType,
    alter_configs,
    describe_configs,
)

app = command_group(
    """Show and change settings of topics and brokers.

    Works with Penstock and Apache Kafka. A target is `topic NAME`, `broker ID`, or `brokers`, the
    default of all brokers.

    \b
    penstock configs describe topic orders --all
    penstock configs set topic orders retention.ms=86400000 cleanup.policy=compact
    penstock configs unset topic orders retention.ms
    """
)
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TARGET] [SETTING]...", help="`topic NAME`, `broker ID` or `brokers`; settings."),
]


SOURCES = {
    ConfigSource.UNKNOWN: "unknown",
    ConfigSource.TOPIC: "topic",
    ConfigSource.BROKER: "broker",
    ConfigSource.BROKERS: "brokers",
    ConfigSource.STATIC: "file",
    ConfigSource.DEFAULT: "default",
    ConfigSource.LOGGER: "logger",
    ConfigSource.CLIENT_METRICS: "client metrics",
    ConfigSource.GROUP: "group",
}


@app.command("describe")
def configs_describe(
    words: Words = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Show defaults too, and all sources of each value.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what each setting means.")] = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show settings with their values and sources: those that are not the default, or those named.

    \b
    penstock configs describe topic orders
    penstock configs describe topic orders retention.ms --verbose
    penstock configs describe broker 1 --all
    penstock configs describe brokers
    """
    resource, names = _parse_target(words or [])
    with connected(server, client_config) as cluster:
        entries = describe_configs(cluster, resource, names or None, documentation=verbose)
    found = {each.name for each in entries}
    absent = [name for name in names if name not in found]
    if absent:
        raise Refused(f"{resource} has no setting {absent[0]}")
    if not everything and not names:
        entries = [each for each in entries if each.source is not ConfigSource.DEFAULT]
    if as_json:
        print_json({"resource": str(resource), "configs": [_as_json(each) for each in entries]})
    elif not entries:
        print(f"{resource}: every setting has its default; --all shows them")
    else:
        _print(resource, entries, everything, verbose)


@app.command("set")
def configs_set(
    words: Words = None, server: Server = None, client_config: ClientConfigFile = None, as_json: Json = False
) -> None:
    """Set values: all of them, or none if one is invalid.

    \b
    penstock configs set topic orders retention.ms=86400000
    penstock configs set brokers log.retention.ms=604800000
    """
    resource, texts = _parse_target(words or [])
    if not texts:
        raise Refused("nothing to set, expected NAME=VALUE")
    values = parse_pairs(texts, "setting")
    _change(server, client_config, resource, [ConfigChange(*each) for each in values.items()], as_json)


@app.command("unset")
def configs_unset(
    words: Words = None, server: Server = None, client_config: ClientConfigFile = None, as_json: Json = False
) -> None:
    """Remove values: the next source applies again, and finally the default.

    \b
    penstock configs unset topic orders retention.ms cleanup.policy
    """
    resource, names = _parse_target(words or [])
    if not names:
        raise Refused("nothing to unset, expected names of settings")
    _change(server, client_config, resource, [ConfigChange(name, None) for name in names], as_json)


class ConfigTarget(NamedTuple):
    resource: Resource
    rest: list[str]


def _parse_target(words: list[str]) -> ConfigTarget:
    """`topic NAME`, `broker ID` or `brokers`, then the rest; with none of these it is all brokers."""
    first = words[0] if words else "brokers"
    if first == "topic":
        if len(words) < 2:
            raise Refused("topic needs a name: topic NAME")
        return ConfigTarget(Resource(ResourceType.TOPIC, words[1]), words[2:])
    if first == "broker":
        if len(words) < 2 or not words[1].isdecimal():
            raise Refused("broker needs an id: broker ID")
        return ConfigTarget(Resource(ResourceType.BROKER, words[1]), words[2:])
    return ConfigTarget(Resource(ResourceType.BROKER, ""), words[1:] if first == "brokers" else words)


def _as_json(entry: ConfigEntry) -> dict[str, object]:
    document: dict[str, object] = {
        "name": entry.name,
        "value": entry.value,
        "source": SOURCES[entry.source],
        "readOnly": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": each.name, "value": each.value, "source": SOURCES[each.source]}
            for each in entry.synonyms
        ],
    }
    if entry.documentation is not None:
        document["documentation"] = entry.documentation
    return document


def _print(resource: Resource, entries: list[ConfigEntry], everything: bool, verbose: bool) -> None:
    columns = ["setting", "value", "source"]
    if everything:
        columns.append("sources")
    rows = []
    for each in entries:
        value = "(hidden)" if each.is_sensitive else each.value
        row = [each.name, value, SOURCES[each.source]]
        if everything:
            row.append(", ".join(f"{SOURCES[s.source]}: {s.name}={s.value}" for s in each.synonyms))
        rows.append(row)
    print_table(columns, rows, title=str(resource))
    if verbose:
        for each in entries:
            print(f"\n{each.name}\n    {(each.documentation or 'No documentation.').strip()}")


def _change(
    server: str | None,
    client_config: str | None,
    resource: Resource,
    changes: list[ConfigChange],
    as_json: bool,
) -> None:
    with connected(server, client_config) as cluster:
        alter_configs(cluster, resource, changes)
    if as_json:
        print_json({"resource": str(resource), "configs": {each.name: each.value for each in changes}})
        return
    for each in changes:
        print(f"{resource}: {each.name}{' unset' if each.value is None else f'={each.value}'}")
