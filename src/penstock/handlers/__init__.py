"""What the broker answers, one function an API: this folder is the list of what exists.

    dispatch           from a frame to its reply; ApiVersions
    context, shapes    what a handler is given, and what it answers with
    table              which function answers which API
    produce            batches in
    fetch              batches out; fetch_sessions remembers what is fetched again and again

Handlers do not wait, look at a clock or open a file: they act on the node's parts and answer, now or with a `Later`.
"""
