"""All clients of HTTP and of the line protocol of a run."""

from itertools import count

from penstock.sim.clients.client import ClientContext
from penstock.sim.clients.http_clients import DoorClient, DoorsPlan, HttpMember, HttpProducer
from penstock.sim.clients.line_clients import LineConsumer, LineProducer

HTTP_GROUP = "web"


class AllDoorClients:
    def __init__(self, plan: DoorsPlan, context: ClientContext) -> None:
        ids = count(1)

        def numbers() -> int:
            return next(ids)

        self._members: list[DoorClient] = [
            HttpMember(f"web-{number}", context, plan, HTTP_GROUP, numbers)
            for number in range(1, plan.members + 1)
        ]
        self._others: list[DoorClient] = [
            *(HttpProducer(f"poster-{each}", context, plan) for each in range(1, plan.producers + 1)),
            *(LineProducer(f"liner-{each}", context, plan) for each in range(1, plan.line_producers + 1)),
            *(
                LineConsumer(f"tail-{each}", context, plan, f"tail-{each}", numbers)
                for each in range(1, plan.line_consumers + 1)
            ),
        ]

    @property
    def _all(self) -> list[DoorClient]:
        return [*self._members, *self._others]

    def start(self) -> None:
        for client in self._all:
            client.start()

    def finish(self) -> None:
        for client in self._all:
            client.is_making = False

    def end(self) -> None:
        for client in self._all:
            client.end()

    @property
    def is_idle(self) -> bool:
        return all(each.is_idle for each in self._all)

    def progress(self) -> dict[str, int]:
        counts = {each.name: each.done_count for each in self._others}
        return counts | {f"group {HTTP_GROUP}": sum(each.done_count for each in self._members)}
