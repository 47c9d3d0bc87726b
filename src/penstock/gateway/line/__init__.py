"""The line protocol: for people with `nc`, and for small devices. `docs/line.md` has all that it promises.

framing       bytes cut into lines and counted payloads
commands      what a line says
offsets       how far a group has come, by way of its coordinator
stream        one request for messages: where it is, what comes next
replies       what a client is told, in the order of its commands
writing       messages in: gathered, written together
telling       messages out: when a stream says what
conversation  commands carried out in order, messages streamed in between
door          the port
"""
