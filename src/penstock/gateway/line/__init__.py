"""The line protocol, for `nc` and for small devices. `docs/line.md` specifies it.

framing           bytes to lines and counted payloads
commands          lines to commands
conversation      one connection: commands executed in order, messages streamed in between
produce_buffer    messages to write, gathered and written together
stream            one request for messages: its position in each partition
stream_sender     when a stream sends a message, `+EMPTY` or `+END`
offsets           committed offsets, through the group's coordinator
replies           replies in the order of the commands
"""
