"""Answers that rest on other answers: one that may be there already, or all of several."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.base.promise import Later

T = TypeVar("T")
R = TypeVar("R")


def after(answer: Later[T], respond: Callable[[T], R]) -> R | Later[R]:
    """The response to an answer: at once, where that is there."""
    if answer.is_answered:
        return respond(answer.value)
    reply: Later[R] = Later()
    answer.then(lambda value: reply.answer(respond(value)))
    return reply


def chained(answer: T | Later[T], respond: Callable[[T], R | Later[R]]) -> R | Later[R]:
    """The response to an answer, where either may come later."""
    if not isinstance(answer, Later):
        return respond(answer)
    reply: Later[R] = Later()

    def came(value: T) -> None:
        response = respond(value)
        if isinstance(response, Later):
            response.then(reply.answer)
        else:
            reply.answer(response)

    answer.then(came)
    return reply


def after_all(answers: Sequence[Later[T]], respond: Callable[[list[T]], R]) -> R | Later[R]:
    """The response to answers that come in any order; it gets them in the order of the questions."""
    left = sum(not each.is_answered for each in answers)
    if not left:
        return respond([each.value for each in answers])
    reply: Later[R] = Later()

    def came(_: T) -> None:
        nonlocal left
        left -= 1
        if not left:
            reply.answer(respond([each.value for each in answers]))

    for each in answers:
        if not each.is_answered:
            each.then(came)
    return reply
