"""The security operator: sets, changes and removes guests' passwords and quotas, creates and deletes their ACLs.

One change is under way at a time. A change that is lost, or answered with an error, may take effect at any later time:
its guest leaves, and another one comes.
"""

from collections.abc import Callable
from itertools import count
from typing import Final

from penstock.base.errors import ErrorCode
from penstock.metadata.acls import Acl
from penstock.metadata.scram import ScramMechanism
from penstock.security.sasl.client import ClientLogin
from penstock.sim.checkers.history import RequestRefused
from penstock.sim.checkers.rights import ChangeEnded, ChangeSent, Quota
from penstock.sim.clients.client import ClientContext
from penstock.sim.clients.guests import Account, Guest
from penstock.sim.clients.login_messages import (
    create_acls,
    delete_acl,
    remove_user,
    set_password,
    set_quota,
)
from penstock.sim.clients.messages import R, Request
from penstock.sim.clients.operator import RandomOperator
from penstock.sim.secured import ADMIN, STANDING_ACLS, SecurityPlan, guest_acls, plain_login

PASSING: Final = frozenset({
    ErrorCode.NONE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
})  # fmt: skip
"""Errors that it may get while nodes restart."""

GUESTS_MAX: Final = 20
"""Guests of a run, with those that left."""

PASSWORD_CHANGES, QUOTA_CHANGES = 0.35, 0.15
"""Shares among all changes."""

QUOTAS: Final = (None, None, 10.0, 1_000_000.0)
"""Bytes per second that a guest may produce; with 10 its second batch is throttled."""


class SecurityOperator(RandomOperator):
    def __init__(self, plan: SecurityPlan, context: ClientContext) -> None:
        super().__init__("security operator", context, plan.change_us_mean, PASSING)
        self._plan_of = plan
        self.guests: list[Guest] = []
        """Also those that left."""
        self._acls: dict[str, frozenset[Acl]] = {}
        """ACLs of the guests that have not left."""
        self._has_password: set[str] = set()
        self._is_changing = False
        self._is_guarded = False
        """The standing ACLs exist."""
        self._numbers = count(1).__next__
        self._do_topics_exist: Callable[[], bool] = lambda: False

    @property
    def login(self) -> ClientLogin:
        return plain_login(ADMIN)

    def wait_for_topics(self, do_topics_exist: Callable[[], bool]) -> None:
        """Change nothing until this returns True."""
        self._do_topics_exist = do_topics_exist

    # -- changes ---------------------------------------------------------------------------------------

    def act(self) -> None:
        if self._is_changing or not self._do_topics_exist():
            return
        if not self._is_guarded:
            self._guard()
        elif len(self._acls) < self._plan_of.guests and len(self.guests) < GUESTS_MAX:
            self._invite()
        elif self._acls:
            guest = self.rng.choice([each for each in self.guests if each.name in self._acls])
            drawn = self.rng.random()
            if drawn < PASSWORD_CHANGES:
                self._change_password(guest)
            elif drawn < PASSWORD_CHANGES + QUOTA_CHANGES:
                self._change_quota(guest.name)
            else:
                self._change_acl(guest.name)

    def _guard(self) -> None:
        """Create the standing ACLs. Until that is answered there are no guests, so it may be repeated."""

        def created(code: int) -> None:
            self._is_guarded = code == ErrorCode.NONE
            self.note_reply("guards the guests' resources", [code])

        self.call(create_acls(STANDING_ACLS), created)

    def _invite(self) -> None:
        mechanism = self.rng.choice(list(ScramMechanism))
        account = Account(f"guest-{len(self.guests) + 1}", mechanism)
        guest = Guest(account, self.context, self._plan_of.pace_us, self._numbers)
        self._acls[guest.name] = frozenset()
        self.guests.append(guest)
        self._set_password(guest)
        guest.start()

    def _change_password(self, guest: Guest) -> None:
        if guest.name in self._has_password and self.rng.random() < 0.5:
            self._has_password.discard(guest.name)
            self.record(ChangeSent(guest.name, None))
            self._change(guest.name, "removes", remove_user(guest.name, guest.account.mechanism), _removed)
        else:
            self._set_password(guest)

    def _set_password(self, guest: Guest) -> None:
        account = guest.account
        password = account.new_password()
        self._has_password.add(guest.name)
        self.record(ChangeSent(guest.name, account.named(password)))
        self._change(
            guest.name,
            f"sets password {len(account.passwords)} of",
            set_password(guest.name, account.salted(password)),
            _same,
        )

    def _change_quota(self, user: str) -> None:
        quota = self.rng.choice(QUOTAS)
        self.record(ChangeSent(user, Quota(quota)))
        self._change(user, f"sets the quota {quota} of", set_quota(user, quota), _same)

    def _change_acl(self, user: str) -> None:
        acl = self.rng.choice(guest_acls(user))
        has_it = acl in self._acls[user]
        self.record(ChangeSent(user, acl, is_created=not has_it))
        if has_it:
            self._acls[user] -= {acl}
            self._change(user, f"deletes {acl} of", delete_acl(acl), self._deleted)
        else:
            self._acls[user] |= {acl}
            self._change(user, f"creates {acl} of", create_acls((acl,)), _same)

    def _deleted(self, answer: tuple[int, int]) -> int:
        code, deleted = answer
        if deleted > 1:
            self.record(
                RequestRefused(self.name, f"deleted {deleted} ACLs instead of one", code, is_due=False)
            )
        return code

    def _change(self, user: str, what: str, request: Request[R], code_of: Callable[[R], int]) -> None:
        self._is_changing = True

        def answered(reply: R) -> None:
            code = code_of(reply)
            self.note_reply(f"{what} {user}", [code])
            end(is_done=code == ErrorCode.NONE)

        def end(*, is_done: bool) -> None:
            self._is_changing = False
            self.record(ChangeEnded(user, is_done))
            if not is_done:
                self._dismiss(user)

        self.call(request, answered, lambda: end(is_done=False))

    def _dismiss(self, user: str) -> None:
        self.trace(f"dismisses {user}")
        del self._acls[user]
        for guest in self.guests:
            if guest.name == user:
                guest.end()


def _same(code: int) -> int:
    return code


def _removed(code: int) -> int:
    """A broker that loses the controller's answer sends its request again, which then finds nothing to remove."""
    return ErrorCode.NONE if code == ErrorCode.RESOURCE_NOT_FOUND else code
