"""`penstock log`: commands that read and repair log directories."""

from penstock.cli.command_group import LazyCommand, LazyGroup, command_group


class Log(LazyGroup):
    table = {  # noqa: RUF012  # read by everyone, written by no one
        "ls": LazyCommand(
            "log.ls:ls_command", "List the partitions of a directory, or the segments of one partition"
        ),
        "dump": LazyCommand("log.dump:dump_command", "Print the contents of files, line by line"),
        "check": LazyCommand(
            "log.check:check_command", "Check every file of a directory, and change nothing"
        ),
        "rebuild": LazyCommand(
            "log.rebuild:rebuild_command", "Rebuild missing or damaged indexes from the log"
        ),
        "strays": LazyCommand("log.strays:app", "Show, restore or delete partitions that no topic claims"),
        "import": LazyCommand("log.transfer:import_command", "Import topics of MiniKafka or Kafka-JR"),
        "export": LazyCommand(
            "log.transfer:export_command", "Export topics as files of MiniKafka or Kafka-JR"
        ),
    }


app = command_group(
    """Look inside logs on disk, check and repair them.

    A DIR is a data directory (with logs/ and meta/), a Kafka log directory (with meta.properties), or the
    directory of one partition, such as orders-0. Directories that Apache Kafka wrote are read as well.

    \b
    penstock log ls penstock-data
    penstock log dump penstock-data/logs/orders-0/00000000000000000000.log --records
    penstock log check penstock-data
    penstock log import --format kafka-jr old-data --data penstock-data
    """,
    cls=Log,
)
