"""Makes the audit that a node's settings ask for. Imported only by nodes that have one."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.base.metrics import AuditMeter, Metrics
from penstock.base.settings import BadSetting
from penstock.base.world import World
from penstock.security.audit import AuditLog, AuditSink
from penstock.server.audit_file import AuditFile
from penstock.server.config import NodeConfig
from penstock.vfs import Vfs

if TYPE_CHECKING:
    from penstock.gateway.shared.audit_topic import AuditTopic
    from penstock.handlers.support.context import Context

logger = logging.getLogger("penstock.audit")


class NodeAudit:
    """The audit of a node, and where its lines go."""

    def __init__(self, world: World, vfs: Vfs, config: NodeConfig, node_id: int, metrics: Metrics) -> None:
        meter = metrics.audit = AuditMeter()
        self._file = _file(world, vfs, config, meter)
        self._topic_name = config.setting("audit.topic") or "" if config.cluster.is_broker else ""
        self._topic: AuditTopic | None = None
        self._meter = meter
        sinks: list[AuditSink] = [_log if self._file is None else self._file]
        if self._topic_name:
            sinks.append(self._to_topic)
        self.log = AuditLog(
            world, node_id, meter, sinks, records_allowed=config.setting("audit.log") == "all"
        )

    @property
    def topic(self) -> str:
        """The topic with the records of the audit; empty for none."""
        return self._topic_name

    def start(self, context: "Context") -> None:
        """The node serves clients, and can write to the topic. Earlier lines are not there."""
        if self._topic_name:
            from penstock.gateway.shared.audit_topic import AuditTopic  # noqa: PLC0415  # few nodes have one

            self._topic = AuditTopic(context, self._topic_name, self._meter)

    def _to_topic(self, lines: Sequence[str]) -> None:
        if self._topic is not None:
            self._topic.add(lines)
        else:
            self._meter.dropped["topic"] += len(lines)

    def stop_topic(self) -> None:
        """The node stops to lead partitions."""
        self.log.stop()
        if self._topic is not None:
            self._topic.stop()
            self._topic = None

    def stop(self, done: Callable[[], None]) -> None:
        """Call `done` when the lines are written."""
        self.log.stop()
        if self._file is None:
            done()
        else:
            self._file.close(done)


def _log(lines: Sequence[str]) -> None:
    for line in lines:
        logger.info("%s", line)


def _file(world: World, vfs: Vfs, config: NodeConfig, meter: AuditMeter) -> AuditFile | None:
    path = config.setting("audit.file")
    if not path:
        return None
    try:
        return AuditFile(world, vfs, path, config.number("audit.file.max.bytes"), meter)
    except OSError as error:
        raise BadSetting(f"audit.file is {path!r}, expected a file that can be written: {error}") from error
