"""The rule for logs that have lost data."""

from penstock.base.ids import TopicPartition
from penstock.sim.checkers.history import Event, ReadAfterLoss, ReadRecord, TxnEnded
from penstock.sim.checkers.records import Durability, Rules, SentRecords
from penstock.sim.checkers.transactions import NoAbortedRead


class NoDecisionFromHole(NoAbortedRead):
    """Lost data never commits a transaction: a read_committed consumer of a damaged log gets no record of an aborted
    transaction, or of one whose commit was never sent."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._lost = ""

    def see(self, event: Event) -> None:
        match event:
            case ReadAfterLoss(at, lost, records):
                self._lost = lost
                for seen in records:
                    self._look_at(at, seen)
            case TxnEnded(txn):
                self.ended(txn)
            case _:
                pass

    def _look_at(self, at: TopicPartition, seen: ReadRecord) -> None:
        txn = self.txn_of(seen)
        if txn is not None:
            self.given.setdefault(txn, seen.value)
            self.gave(f"a reader, after {self._lost},", at, seen, txn)
