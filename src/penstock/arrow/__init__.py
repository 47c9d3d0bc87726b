"""Records to Arrow columns, and back, with no Python object for each of them.

frames      headers of batches, all at once      decode      a partition's bytes to Arrow batches
framing     batches: CRC, codecs, transactions   encode      Arrow batches to record batches
walk        where each record begins             slots       where an encoded record's fields go
lanes       the same, from several guesses       partition   which partition a key goes to
varints     numbers, many at once                arrays      Arrow's binary arrays, as numpy sees them
columns     fields gathered into columns         headers     records' headers
"""
