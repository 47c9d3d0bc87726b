"""Topics as rows: planned on the driver, read by tasks, once or as a stream.

options       options of a reader, checked         option_names   which options there are
offset_json   offsets in options, checkpoints      offsets        topics, where they start and end
batch         from somewhere to somewhere          plan           ranges, cut into tasks
fetch         a task: one range of a partition     fetch_request  what it asks for
stream        offsets of a stream, its ends        rate           how much is one batch of a stream
tail          waits for new records                group          the position, for all to see its lag
"""
