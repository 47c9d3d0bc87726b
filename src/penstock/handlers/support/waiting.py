"""Answers that rest on other answers: one that may be there already, or all of several."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.base.promise import Promise

T = TypeVar("T")
R = TypeVar("R")


def after(answer: Promise[T], respond: Callable[[T], R]) -> R | Promise[R]:
    """The response to an answer: at once, where that is there."""
    if answer.is_settled:
        return respond(answer.value)
    reply: Promise[R] = Promise()
    answer.then(lambda value: reply.resolve(respond(value)))
    return reply


def chained(answer: T | Promise[T], respond: Callable[[T], R | Promise[R]]) -> R | Promise[R]:
    """The response to an answer, where either may come later."""
    if not isinstance(answer, Promise):
        return respond(answer)
    reply: Promise[R] = Promise()

    def came(value: T) -> None:
        response = respond(value)
        if isinstance(response, Promise):
            response.then(reply.resolve)
        else:
            reply.resolve(response)

    answer.then(came)
    return reply


def after_all(answers: Sequence[Promise[T]], respond: Callable[[list[T]], R]) -> R | Promise[R]:
    """The response to answers that come in any order; it gets them in the order of the questions."""
    left = sum(not each.is_settled for each in answers)
    if not left:
        return respond([each.value for each in answers])
    reply: Promise[R] = Promise()

    def came(_: T) -> None:
        nonlocal left
        left -= 1
        if not left:
            reply.resolve(respond([each.value for each in answers]))

    for each in answers:
        if not each.is_settled:
            each.then(came)
    return reply
