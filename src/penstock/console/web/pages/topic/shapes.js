// What the API returns about topics, for the type checker.

/**
 * @typedef {object} TopicRow
 * @property {string} name
 * @property {string} id
 * @property {number} partitions
 * @property {number} replication_factor
 * @property {boolean} internal
 * @property {number | null} under_replicated
 * @property {number | null} offline
 * @property {number | null} size_bytes
 * @property {number | null} messages
 * @property {number | null} bytes_in_per_second
 * @property {number | null} messages_in_per_second
 * @property {string[] | null} cleanup_policy
 * @property {number | null} retention_ms
 * @property {number | null} retention_bytes
 */

/** @typedef {{broker: number, is_leader: boolean, in_sync: boolean, log_end: number | null, lag: number | null, behind_ms: number | null, size_bytes: number | null}} Replica */

/**
 * @typedef {object} Partition
 * @property {number} partition
 * @property {number | null} leader
 * @property {number} leader_epoch
 * @property {number[]} replicas
 * @property {number[]} isr
 * @property {number | null} log_start
 * @property {number | null} end
 * @property {number | null} high_watermark
 * @property {number | null} last_stable
 * @property {number | null} size_bytes
 * @property {number | null} segments
 * @property {number | null} lag_max
 * @property {Replica[]} replica_states
 */

/** @typedef {{name: string, id: string, internal: boolean, partitions: Partition[], unanswered: number[], summary: TopicRow}} Topic */

/** @typedef {{name: string, value: string | null, source: string, is_default: boolean, read_only: boolean, type: string, documentation: string, default: string | null, synonyms: {name: string, value: string | null, source: string}[], choices: string[], min: number | null, max: number | null, has_effect: boolean}} Config */

/** @typedef {{file: string, baseOffset: number, endOffset: number, sizeBytes: number, isActive: boolean, largestTimestamp: number, firstTimestamp: number, isCompacted: boolean, records: number | null, offsetIndex: {entries: number, sizeBytes: number}, timeIndex: {entries: number, sizeBytes: number}}} Segment */

/** @typedef {{partition: number, leader: number, logStartOffset: number | null, logEndOffset: number | null, sizeBytes: number | null, segmentCount: number, segments: Segment[]}} PartitionLog */

/** @typedef {{baseOffset: number, lastOffset: number, position: number, sizeBytes: number, records: number, codec: string, leaderEpoch: number, baseTimestamp: number | null, maxTimestamp: number, timestampType: string, producerId: number | null, producerEpoch: number | null, baseSequence: number | null, isTransactional: boolean, isControl: boolean, deleteHorizon: number | null}} Batch */

/** @typedef {{low: number, high: number, entry: number, key: number, value: number, isAbove: boolean}} Probe */

/**
 * @typedef {object} Lookup
 * @property {number} sought
 * @property {"offset" | "time"} by
 * @property {number} segments
 * @property {string} message
 * @property {number | null} segment
 * @property {number | null} segmentNumber
 * @property {number | null} segmentBytes
 * @property {Probe[]} timeProbes
 * @property {{timestamp: number, offset: number} | null} timeEntry
 * @property {Probe[]} indexProbes
 * @property {{offset: number, position: number} | null} indexEntry
 * @property {number | null} scanFrom
 * @property {{position: number, sizeBytes: number, baseOffset: number, lastOffset: number, maxTimestamp: number, isFound: boolean}[]} scanned
 * @property {number} scannedBatches
 * @property {number} scannedBytes
 * @property {Batch | null} batch
 * @property {{offset: number, timestamp: number, number: number, keyBytes: number | null, valueBytes: number | null} | null} record
 */

export {};
