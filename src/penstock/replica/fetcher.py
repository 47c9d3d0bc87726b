"""Copying from one leader: a question, its answer, and the next question, for all partitions that it leads.

    ask --> append --> learn --> part --> sync --> ask
            records    high      cut off  where that
                       watermark what is  must come
                                 not the  first
                                 leader's

One question is under way at a time: each tells the leader how far every log has come. What goes wrong with a partition
costs that partition a rest, and nobody else anything; what goes wrong with the leader, all of its partitions.

A leader with nothing to tell answers late, after `replica.fetch.wait.max.ms`. A partition that is new here cannot wait
for that: when a leader dies, producers wait for the followers to find the next one. After `PATIENCE_MS` the question
that waits is given up, and all is asked anew over another connection; its answer, should it come, is not looked at.
"""

import logging
from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TopicPartition
from penstock.base.world import Timer
from penstock.metadata.controller.requests import UNWRITABLE
from penstock.replica.fetch_session import Session
from penstock.replica.following import Ends, Following, Key
from penstock.replica.leader_ends import find_ends
from penstock.replica.partition import Partition
from penstock.storage import StorageError
from penstock.wire import Api, EpochEndOffset, FetchRequest, FetchResult
from penstock.wire.fetch_client import FetchResponse, fetch_body, read_fetch_response
from penstock.wire.peers import PeerFailed
from penstock.wire.request import Request

if TYPE_CHECKING:
    from penstock.replica.fetchers import Fetchers

logger = logging.getLogger(__name__)

VERSION_MIN, VERSION_MAX = 17, 18
"""Fetch as brokers of one cluster speak it: with topic ids and the follower's broker epoch."""

RETRY_MS_MIN: Final = 50
"""The first rest after an error; each is twice as long as the one before, up to `replica.fetch.backoff.ms`."""

PATIENCE_MS: Final = 20
"""How long new partitions wait for the answer to a question in which they are not. Busy leaders answer sooner."""

TRUNCATIONS_A_TURN: Final = 8
"""Each waits for the disk, some milliseconds, and everybody else with it."""

HELD_BACK_MS_MAX: Final = 1000
"""After so long it is looked again whether what is throttled must still wait: the rate may be another."""

PURPOSES: Final = ("replica", "replica-2")
"""Connections: a question that was given up keeps one busy until it is answered."""


class _Question:
    """One that was asked and is not answered."""

    __slots__ = ("purpose",)

    def __init__(self, purpose: str) -> None:
        self.purpose = purpose


class Fetcher:
    def __init__(self, leader_id: int, home: "Fetchers") -> None:
        self.leader_id = leader_id
        self.following: dict[Key, Following] = {}
        self._home = home
        self._world = home.world
        self._session = Session()
        self._question: _Question | None = None
        """The one whose answer counts."""
        self._busy: set[str] = set()
        """Purposes under which a question waits, given up or not."""
        self._parting: deque[tuple[Following, EpochEndOffset]] = deque()
        self._is_settling = False
        """An answer is being dealt with."""
        self._is_waking = False
        self._failures = 0
        """Of the leader, one after the other."""
        self._rest: Timer | None = None
        """Runs after the leader has failed."""
        self._patience: Timer | None = None

    # -- what is followed ------------------------------------------------------------------------------

    def follow(self, following: Following) -> None:
        self.following[following.key] = following
        following.is_ready = False
        if self._rest is not None:  # somebody says that the leader is there
            self._rest.cancel()
            self._rest = None
            self._wake(following)  # for all others too: this one may be gone before its log is synced
        if following.partition.has_failing_disk:
            following.waits_for_disk = True
            return
        self._begin(following)

    def _begin(self, following: Following, *, is_trial: bool = False) -> None:
        try:
            following.begin()
        except StorageError as error:
            self._trouble(following, error)
            return
        self._enter(following, is_trial=is_trial)

    def suspend(self, key: Key) -> None:
        """The disk fails: ask for nothing until `resume`."""
        following = self.following.get(key)
        if following is not None:
            following.waits_for_disk = True
            following.is_ready = False
            if following.timer is not None:
                following.timer.cancel()
                following.timer = None
            self._session.drop(following)

    def resume(self, key: Key) -> None:
        following = self.following.get(key)
        if following is not None and following.waits_for_disk:
            following.waits_for_disk = False
            self._begin(following, is_trial=True)

    def forget(self, key: Key) -> Following | None:
        following = self.following.pop(key, None)
        if following is not None:
            if following.timer is not None:
                following.timer.cancel()
                following.timer = None
            self._session.drop(following)
        return following

    def stop(self) -> None:
        for key in list(self.following):
            self.forget(key)
        for timer in (self._rest, self._patience):
            if timer is not None:
                timer.cancel()
        self._question = self._rest = self._patience = None

    def _enter(self, following: Following, *, is_trial: bool = False) -> None:
        """Have it fetched from now on, once the leader may be told how far it is; if its disk has failed before, once
        it is synced."""

        def synced(failed: list[Partition]) -> None:
            if self.following.get(following.key) is not following or following.waits_for_disk:
                return
            if failed:
                self._trouble(following, _not_synced(following.partition))
                return
            following.is_ready = True
            self._session.put(following)
            self._wake(following)

        self._home.syncs.written([following.partition], synced, is_trial=is_trial)

    # -- errors ----------------------------------------------------------------------------------------

    def _retry_ms(self, errors: int) -> float:
        return min(float(self._home.backoff_ms), RETRY_MS_MIN * 2.0 ** min(errors - 1, 16))

    def _trouble(self, following: Following, error: KafkaError) -> None:
        """Let a partition rest; where its disk has failed, until `resume`."""
        self._home.failures += 1
        following.failed(error)
        if isinstance(error, StorageError) and not following.waits_for_disk:
            following.partition.disk_failed(UNWRITABLE)
        if not following.waits_for_disk:
            self._pause(following, self._retry_ms(following.errors))

    def _pause(self, following: Following, delay_ms: float) -> None:
        following.is_ready = False
        self._session.drop(following)
        following.timer = self._world.call_later(delay_ms, partial(self._rested, following))

    def _rested(self, following: Following) -> None:
        following.timer = None
        self._enter(following)

    def _find_ends(self, following: Following) -> None:
        """The leader has nothing where this log ends: find out where it has."""
        following.is_ready = False
        self._session.drop(following)
        home = self._home

        def found(ends: Ends | KafkaError) -> None:
            if self.following.get(following.key) is not following or following.waits_for_disk:
                return
            if isinstance(ends, KafkaError):
                self._trouble(following, ends)
                return
            try:
                following.meet(ends, self._world.now_ms())
            except KafkaError as error:
                self._trouble(following, error)
            else:
                self._enter(following)

        find_ends(home.broker_client, self.leader_id, home.node_id, following, home.timeout_ms).then(found)

    def _leader_failed(self, error: KafkaError) -> None:
        self._session.lose()
        self._failures += 1
        self._home.failures += 1
        if self._failures == 1:
            logger.info("broker %d is not followed for now: %s", self.leader_id, error)
        self._rest = self._world.call_later(self._retry_ms(self._failures), self._leader_rested)

    def _leader_rested(self) -> None:
        self._rest = None
        self._ask()

    # -- asking ----------------------------------------------------------------------------------------

    def _wake(self, newcomer: Following) -> None:
        """Something is to be asked for that is in no question yet."""
        if self._question is None:
            if not self._is_waking:
                self._is_waking = True
                self._world.call_soon(self._awake)
        elif self._patience is None and newcomer.is_eager:
            self._be_patient(self._question)

    def _awake(self) -> None:
        self._is_waking = False
        self._ask()

    def _be_patient(self, question: _Question) -> None:
        self._patience = self._world.call_later(PATIENCE_MS, partial(self._give_up, question))

    def _give_up(self, question: _Question) -> None:
        self._patience = None
        has_room = len(self._busy) < len(PURPOSES)
        if question is self._question and has_room and self._session.has_newcomers:
            self._question = None
            self._session.lose()
            self._ask()

    def _ask(self) -> None:
        purpose = next((each for each in PURPOSES if each not in self._busy), None)
        if purpose is None or self._question is not None or self._is_settling or self._rest is not None:
            return
        request = self._request()
        if request is None:
            return
        question = self._question = _Question(purpose)
        self._busy.add(purpose)
        answer = self._home.broker_client.send(
            self.leader_id,
            Request(
                Api.FETCH,
                VERSION_MIN,
                VERSION_MAX,
                write=lambda version: fetch_body(version, request),
                read=read_fetch_response,
            ),
            timeout_ms=self._home.timeout_ms,
            purpose=purpose,
        )
        if answer.is_settled:
            # Without the loop in between, a leader that always answers at once would never let go.
            self._world.call_soon(lambda: self._answered(question, answer.value))
        else:
            answer.then(partial(self._answered, question))

    def _request(self) -> FetchRequest | None:
        """The next question; None if there is nothing to ask for."""
        self._hold_back()
        home = self._home
        ready = (each for each in self.following.values() if each.is_ready)
        first = next(ready, None)
        if first is None:
            return None
        wait_ms_max = 0 if self._session.is_opening else home.wait_ms_max
        asked = self._session.ask(chain((first,), ready))
        return FetchRequest(
            wait_ms_max,
            home.bytes_min,
            home.bytes_max,
            0,
            asked.session_id,
            asked.session_epoch,
            asked.topics,
            asked.forgotten,
            "",
            home.node_id,
            home.broker_epoch(),
            None,
        )

    def _clock_ms(self) -> int:
        return self._world.clock_ns() // 1_000_000

    def _hold_back(self) -> None:
        """Leave out what is throttled, and behind, until more of it may be taken."""
        if not self._home.has_throttled:
            return
        delay_ms = self._home.throttle.delay_ms(self._clock_ms())
        if delay_ms > 0:
            delay_ms = min(delay_ms, HELD_BACK_MS_MAX)
            for each in self.following.values():
                if each.is_throttled and each.is_ready and each.is_behind:
                    self._pause(each, delay_ms)

    # -- answers ---------------------------------------------------------------------------------------

    def _answered(self, question: _Question, answer: FetchResponse | PeerFailed) -> None:
        self._busy.discard(question.purpose)
        if question is not self._question:
            # It was given up, and others may have waited for its connection.
            if self._question is None:
                self._ask()
            elif self._patience is None and self._session.has_newcomers:
                self._be_patient(self._question)
            return
        self._question = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if isinstance(answer, PeerFailed):
            self._leader_failed(answer)
            return
        if answer.error_code:
            self._refused(answer.error_code)
            return
        if self._failures:
            logger.info("broker %d is followed again", self.leader_id)
        self._failures = 0
        self._session.answered(answer.session_id)
        self._take(answer)

    def _refused(self, code: int) -> None:
        """The session is gone, as after a restart of the leader, or the whole question is not to its liking."""
        was_open = self._session.is_open
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session.lose(0)
        else:
            self._session.lose()
        if was_open:
            self._ask()
        else:
            self._leader_failed(KafkaError(f"it answers error {code}", ErrorCode.UNKNOWN_SERVER_ERROR))

    def _take(self, answer: FetchResponse) -> None:
        self._is_settling = True
        now_ms = self._world.now_ms()
        good: list[tuple[Following, FetchResult]] = []
        grown: list[Partition] = []
        for topic, results in answer.topics:
            for result in results:
                following = self.following.get((topic, result.partition))  # type: ignore[arg-type]  # by id
                if following is None or following.told is None:
                    continue  # it is of an earlier leader's time, or rests
                if result.diverging_epoch is not None and not result.error_code:
                    self._parting.append((following, result.diverging_epoch))
                    continue
                try:
                    taken_bytes = following.append(result, now_ms)
                except KafkaError as error:
                    if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        self._find_ends(following)
                    else:
                        self._trouble(following, error)
                    continue
                good.append((following, result))
                if taken_bytes:
                    self._home.copied_bytes += taken_bytes
                    grown.append(following.partition)
                    if following.is_throttled:
                        self._home.throttle.take(taken_bytes, self._clock_ms())
        self._learn(good)
        self._part(grown)

    def _learn(self, good: list[tuple[Following, FetchResult]]) -> None:
        starts: dict[TopicPartition, Offset] = {}
        for following, result in good:
            if following.starts_later(result):
                starts[following.partition.name] = result.log_start_offset
        if starts:
            try:
                self._home.save_log_starts(starts)
            except StorageError as error:
                logger.error("%s", error)
        for following, result in good:
            following.learn(result)
            if following.told != following.wanted():
                self._session.put(following)
            if result.records and not self._session.is_open:
                # The leader remembers nothing: this one comes after all others in the next question.
                self.following[following.key] = self.following.pop(following.key)

    def _part(self, grown: list[Partition]) -> None:
        """Cut logs off, some in a turn, then go on."""
        for _ in range(min(len(self._parting), TRUNCATIONS_A_TURN)):
            following, epoch_end = self._parting.popleft()
            if self.following.get(following.key) is not following or following.waits_for_disk:
                continue
            try:
                following.part(epoch_end)
            except KafkaError as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._find_ends(following)
                else:
                    self._trouble(following, error)
                continue
            # The high watermark came with this answer, and holds only once the logs agree: it is to be told again.
            self._session.drop(following)
            self._session.put(following)
        if self._parting:
            self._world.call_soon(partial(self._part, grown))
        else:
            self._home.syncs.written(grown, self._settled)

    def _settled(self, failed: list[Partition]) -> None:
        self._is_settling = False
        for partition in failed:
            following = self.following.get((partition.topic_id, partition.number))
            if following is not None and following.is_ready:
                self._trouble(following, _not_synced(partition))
        self._ask()


def _not_synced(partition: Partition) -> KafkaError:
    return StorageError(f"{partition.name} could not be synced, and its leader must not count on it")
