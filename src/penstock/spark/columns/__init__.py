"""Records to Arrow columns, and back, with no Python object for each of them.

framing     batches: CRC, codecs, transactions   decode      a partition's bytes to Arrow batches
walk        where each record begins             encode      Arrow batches to record batches
lanes       the same, from several guesses       slots       where an encoded record's fields go
varints     numbers, many at once                partition   which partition a key goes to
columns     fields gathered into columns         arrays      Arrow's binary arrays, as numpy sees them
headers     records' headers
"""
