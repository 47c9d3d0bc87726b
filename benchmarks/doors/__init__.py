"""The doors beside Kafka's, under load, each beside a bare server of the same kind in the same run.

bare     the yardstick: the door's own connections and parser with a fixed reply, and no node behind them
load     the generator: many connections, one epoll, a fixed request, replies counted by how they end
"""
