"""Records to Arrow columns, and back, without a Python object per record.

decode               decodes a partition's bytes to Arrow batches
frames               parses batch headers, all at once
framing              selects batches: CRC, codecs, aborted transactions
walk                 finds the start of each record
speculative_starts   guesses record starts inside large batches, so that `walk` can run in parallel
varints              decodes many varints at once
columns              decodes fields of records to columns
headers              decodes record headers
encode               encodes Arrow batches to record batches
slots                writes the varints of encoded records
partition            computes the partitions of keys
arrays               converts between Arrow arrays and numpy
"""
