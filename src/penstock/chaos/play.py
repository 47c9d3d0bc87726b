"""Runs one campaign on its own event loop, until it ends or a signal arrives."""

import asyncio
import signal
from collections.abc import Callable

from penstock.chaos.campaign import Campaign, CampaignResult, Plan


def play(plan: Plan, say: Callable[[str], None] = lambda _: None) -> CampaignResult:
    """Run a campaign. Call it from the main thread: brokers end with the thread that started them."""

    async def run() -> CampaignResult:
        campaign = Campaign(plan, say)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, campaign.interrupt)
        return await campaign.run()

    # It must be the standard library's loop: see `loop_ports`.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(run())
