"""Plays one campaign on a loop of its own, until it is over or a signal comes."""

import asyncio
import signal
from collections.abc import Callable

from penstock.chaos.campaign import Campaign, Outcome, Plan


def play(plan: Plan, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """Called from the main thread, which brokers are started from: they end with it."""

    async def run() -> Outcome:
        campaign = Campaign(plan, say)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, campaign.interrupt)
        return await campaign.run()

    # The standard library's loop, and no other: see `stage`.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(run())
