import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Predicate;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes a Kafka write one of everything that its log directories can hold, and reads it back.
 *
 * <p>It runs in phases, each against a running broker. The broker is restarted between the first two, so
 * that leader epochs move.
 *
 * <pre>
 * WriteEverything write  127.0.0.1:port   topics, codecs, segments, transactions, compaction, deletion
 * WriteEverything append 127.0.0.1:port   more of some, in a later leader epoch; work left unfinished
 * WriteEverything read   127.0.0.1:port   a JSON line for each partition and record, to standard output
 * WriteEverything crash  127.0.0.1:port   one small topic, for a broker that is about to be killed
 * </pre>
 */
public final class WriteEverything {
    /** 14 November 2023, 22:13:20 UTC: where fixed timestamps begin. */
    private static final long EPOCH_MS = 1_700_000_000_000L;
    private static final long DONE_WITHIN_MS = 60_000;
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    private static final int RECORD_DELETED_BYTES = 114;
    /** Kafka 4 refuses segment.bytes below 1 MB; this is the setting that its own tests use instead. */
    private static final Map<String, String> SMALL =
        Map.of("internal.segment.bytes", "1500", "index.interval.bytes", "300");

    private final String bootstrap;
    private final Admin admin;

    private WriteEverything(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] args) throws Exception {
        WriteEverything self = new WriteEverything(args[1]);
        switch (args[0]) {
            case "write" -> self.write();
            case "append" -> self.append();
            case "read" -> self.read();
            case "crash" -> self.crash();
            default -> throw new IllegalArgumentException("unknown phase: " + args[0]);
        }
        System.out.flush();
        // A producer with an open transaction would wait to be closed; it must stay open on disk.
        Runtime.getRuntime().halt(0);
    }

    private void write() throws Exception {
        createTopics();
        codecs();
        segments();
        idempotent(0);
        transactions();
        deleteRecords(0);
        waitUntilSmaller(new TopicPartition("records-deleted", 0), 40 * RECORD_DELETED_BYTES);
        logAppendTime();
        groups();
        compactedTombstonesGone();
        compactedTransactions();
    }

    private void append() throws Exception {
        try (Writer writer = new Writer("plain-2", Map.of("enable.idempotence", "false"))) {
            for (int i = 0; i < 3; i++) {
                writer.send("segments", 0, EPOCH_MS + 200_000 + i, "later-" + i, "epoch", List.of());
                writer.flush();
            }
        }
        idempotent(1);
        openTransaction();
        // What follows takes a minute to be finished, and the broker stops sooner: segments below the
        // log start offset, replaced segments and a deleted topic are still there.
        deleteRecords(1);
        compactedTombstonesKept();
        admin.deleteTopics(List.of("doomed")).all().get();
    }

    private void crash() throws Exception {
        admin.createTopics(List.of(topic("crashed", 1, SMALL))).all().get();
        try (Writer writer = new Writer("crash-idempotent", Map.of("enable.idempotence", "true"));
             Writer txn = new Writer("crash-txn", transactional("crash-txn"))) {
            txn.producer.initTransactions();
            for (int round = 0; round < 3; round++) {
                txn.producer.beginTransaction();
                for (int i = 0; i < 5; i++) {
                    txn.send("crashed", 0, now(), "txn", "txn-" + round + "-" + i, List.of());
                    txn.flush();
                    writer.send("crashed", 0, now(), "key-" + i, "plain-" + round + "-" + i, List.of());
                    writer.flush();
                }
                txn.finish(round != 1);
            }
        }
    }

    // ---- what is written -------------------------------------------------------------------------

    private void createTopics() throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String codec : CODECS) {
            topics.add(topic("codec-" + codec, 1, SMALL));
        }
        topics.add(topic("segments", 2, SMALL));
        topics.add(topic("idempotent", 1, SMALL));
        topics.add(topic("transactions", 2, SMALL));
        topics.add(topic("transaction-open", 1, SMALL));
        topics.add(topic("records-deleted", 2, SMALL));
        topics.add(topic("log.append_time", 1, with(SMALL, "message.timestamp.type", "LogAppendTime")));
        topics.add(topic("empty", 1, SMALL));
        topics.add(topic("doomed", 1, with(SMALL, "segment.index.bytes", "4096")));
        Map<String, String> compact = with(SMALL,
            "cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.0");
        topics.add(topic("compacted-tombstones-kept", 1, compact));
        topics.add(topic("compacted-tombstones-gone", 1,
            with(compact, "delete.retention.ms", "1", "file.delete.delay.ms", "1")));
        topics.add(topic("compacted-transactions", 1, with(compact, "file.delete.delay.ms", "1")));
        admin.createTopics(topics).all().get();
    }

    /** Every codec, in batches of several records: keys, null keys, null values, headers of every shape. */
    private void codecs() {
        for (String codec : CODECS) {
            Map<String, String> settings = Map.of(
                "compression.type", codec, "enable.idempotence", "false", "acks", "1", "linger.ms", "60000");
            try (Writer writer = new Writer("codec-" + codec, settings)) {
                String topic = "codec-" + codec;
                for (int batch = 0; batch < 6; batch++) {
                    long at = EPOCH_MS + batch * 1_000L;
                    String text = ("the same words again, " + batch + "; ").repeat(8);
                    writer.send(topic, 0, at, "key-" + batch, text, List.of());
                    writer.send(topic, 0, at + 5, null, "no key", List.of(header("trace", "id-" + batch)));
                    writer.send(topic, 0, at + 3, "no value", null, List.of(header("null", null)));
                    writer.send(topic, 0, at + 4, null, null, List.of());
                    writer.send(topic, 0, at + 4, "", "", List.of(header("", ""), header("twice", "1"), header("twice", "2")));
                    writer.send(topic, 0, at + 9, "schl\u00fcssel", "\u0000\u0001\u4e16\u754c", List.of(header("\u00e9", "\u00e9")));
                    writer.flush();
                }
            }
        }
        try (Writer writer = new Writer("plain-0", Map.of("enable.idempotence", "false"))) {
            writer.send("doomed", 0, EPOCH_MS, "k", "v", List.of());
            writer.flush();
        }
    }

    /** Many single-record batches, over several segments; timestamps that sometimes step back. */
    private void segments() {
        try (Writer writer = new Writer("plain-1", Map.of("enable.idempotence", "false"))) {
            for (int i = 0; i < 60; i++) {
                long at = EPOCH_MS + i * 1_000L - (i % 7 == 3 ? 20_000 : 0);
                writer.send("segments", 0, at, "key-" + i % 5, "value-" + i + "-" + ".".repeat(i), List.of());
                writer.flush();
            }
            writer.send("segments", 1, EPOCH_MS, "alone", "in its partition", List.of());
            writer.flush();
        }
    }

    private void idempotent(int round) {
        try (Writer writer = new Writer("idempotent-" + round, Map.of("enable.idempotence", "true"))) {
            for (int i = 0; i < 8; i++) {
                writer.send("idempotent", 0, now(), "key-" + i, "round-" + round + "-" + i, List.of());
                writer.flush();
            }
        }
    }

    /** Two producers whose transactions overlap, commit and abort; one that spans two partitions. */
    private void transactions() {
        String topic = "transactions";
        try (Writer a = new Writer("txn-a", transactional("txn-a")); Writer b = new Writer("txn-b", transactional("txn-b"));
             Writer plain = new Writer("txn-plain", Map.of("enable.idempotence", "false"))) {
            a.producer.initTransactions();
            b.producer.initTransactions();
            for (int round = 0; round < 4; round++) {
                a.producer.beginTransaction();
                b.producer.beginTransaction();
                for (int i = 0; i < 3; i++) {
                    a.send(topic, 0, now(), "a", "a-" + round + "-" + i, List.of());
                    a.flush();
                    b.send(topic, 0, now(), "b", "b-" + round + "-" + i, List.of());
                    b.flush();
                }
                plain.send(topic, 0, now(), null, "plain-" + round, List.of());
                plain.flush();
                a.send(topic, 1, now(), "a", "other-" + round, List.of());
                a.finish(round % 2 == 0);
                b.send(topic, 0, now(), "b", "b-" + round + "-last", List.of());
                b.finish(round == 1);
            }
            a.producer.beginTransaction();
            a.send(topic, 1, now(), "a", "alone and aborted", List.of());
            a.finish(false);
        }
    }

    /** Leaves a transaction open: the last stable offset stays behind the end of the log. */
    private void openTransaction() {
        Writer open = new Writer("txn-open", transactional("txn-open"));
        open.producer.initTransactions();
        open.producer.beginTransaction();
        open.send("transaction-open", 0, now(), "k", "committed", List.of());
        open.finish(true);
        open.producer.beginTransaction();
        open.send("transaction-open", 0, now(), "k", "never decided", List.of());
        open.flush();
        try (Writer writer = new Writer("txn-after", Map.of("enable.idempotence", "false"))) {
            writer.send("transaction-open", 0, now(), "k", "behind the open one", List.of());
            writer.flush();
        }
    }

    /** Moves the log start offset into the middle of a segment, with a whole segment before it. */
    private void deleteRecords(int partition) throws Exception {
        try (Writer writer = new Writer("plain-3", Map.of("enable.idempotence", "false"))) {
            for (int i = 0; i < 40; i++) {
                writer.send("records-deleted", partition, EPOCH_MS + i, "key-" + i, "x".repeat(40), List.of());
                writer.flush();
            }
        }
        admin.deleteRecords(Map.of(new TopicPartition("records-deleted", partition), RecordsToDelete.beforeOffset(17)))
            .all().get();
    }

    private void waitUntilSmaller(TopicPartition partition, long bytes) throws Exception {
        long deadline = now() + DONE_WITHIN_MS;
        while (size(partition) >= bytes) {
            if (now() > deadline) {
                throw new IllegalStateException(partition + " still has " + size(partition) + " bytes");
            }
            Thread.sleep(50);
        }
    }

    private long size(TopicPartition partition) throws Exception {
        return admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().iterator().next()
            .replicaInfos().get(partition).size();
    }

    private void logAppendTime() {
        try (Writer writer = new Writer("plain-4", Map.of("enable.idempotence", "false", "linger.ms", "60000",
                "compression.type", "lz4"))) {
            for (int i = 0; i < 12; i++) {
                writer.send("log.append_time", 0, EPOCH_MS + i, "key-" + i, "written by the broker's clock", List.of());
                if (i % 4 == 3) {
                    writer.flush();
                }
            }
        }
    }

    /** Commits for a classic group, for a group of the newer protocol, and for one without members. */
    private void groups() throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            Map<String, Object> settings = consumerSettings(false);
            settings.put("group.id", "group-" + protocol);
            settings.put("group.protocol", protocol);
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
                consumer.subscribe(List.of("codec-none", "segments"));
                int seen = 0;
                while (seen < 20) {
                    seen += consumer.poll(Duration.ofMillis(200)).count();
                }
                consumer.commitSync();
            }
        }
        admin.alterConsumerGroupOffsets("group-by-hand", Map.of(
            new TopicPartition("segments", 0), new OffsetAndMetadata(7, "by hand"))).all().get();
    }

    private void compactedTombstonesKept() throws Exception {
        String topic = "compacted-tombstones-kept";
        try (Writer writer = new Writer("compact-0", Map.of())) {
            writeRounds(writer, topic);
            waitUntilCleaned(writer, topic, records -> !keyTwice(records));
        }
    }

    private void compactedTombstonesGone() throws Exception {
        String topic = "compacted-tombstones-gone";
        try (Writer writer = new Writer("compact-1", Map.of())) {
            writeRounds(writer, topic);
            waitUntilCleaned(writer, topic,
                records -> !keyTwice(records) && records.stream().allMatch(record -> record.value() != null));
        }
    }

    /** Twelve keys written four times over, some of them deleted in the end. */
    private void writeRounds(Writer writer, String topic) {
        for (int round = 0; round < 4; round++) {
            for (int key = 0; key < 12; key++) {
                boolean delete = round == 3 && key % 4 == 1;
                writer.send(topic, 0, now(), "key-" + key, delete ? null : "round-" + round, List.of());
                if (key % 3 == 2) {
                    writer.flush();
                }
            }
        }
    }

    /** Committed values that replace each other, and aborted ones that must not replace anything. */
    private void compactedTransactions() throws Exception {
        String topic = "compacted-transactions";
        try (Writer writer = new Writer("compact-txn", transactional("compact-txn")); Writer nudge = new Writer("compact-2", Map.of())) {
            writer.producer.initTransactions();
            for (int round = 0; round < 6; round++) {
                writer.producer.beginTransaction();
                for (int key = 0; key < 5; key++) {
                    boolean delete = round == 4 && key == 2;
                    writer.send(topic, 0, now(), "key-" + key, delete ? null : "round-" + round, List.of());
                }
                writer.finish(round % 3 != 2);
            }
            waitUntilCleaned(nudge, topic, records -> !keyTwice(records));
        }
    }

    /**
     * Writes a record now and then, so that segments roll and the cleaner has a reason to run, until what
     * was there before satisfies the condition.
     */
    private void waitUntilCleaned(Writer writer, String topic, Predicate<List<ConsumerRecord<byte[], byte[]>>> cleaned)
            throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        KafkaConsumer<byte[], byte[]> consumer = consumer(false);
        long end = offset(partition, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED);
        long deadline = now() + DONE_WITHIN_MS;
        int nudges = 0;
        while (true) {
            List<ConsumerRecord<byte[], byte[]>> before =
                consume(consumer, partition).stream().filter(record -> record.offset() < end).toList();
            if (nudges > 0 && cleaned.test(before)) {
                consumer.close();
                return;
            }
            if (now() > deadline) {
                throw new IllegalStateException(topic + " was not cleaned within " + DONE_WITHIN_MS + " ms");
            }
            // A key of their own, so that the cleaner throws the earlier ones away again.
            for (int i = 0; i < 8; i++, nudges++) {
                writer.send(topic, 0, now(), "nudge", "n".repeat(150), List.of());
                writer.flush();
            }
            Thread.sleep(200);
        }
    }

    private static boolean keyTwice(List<ConsumerRecord<byte[], byte[]>> records) {
        Set<String> keys = new HashSet<>();
        return records.stream().anyMatch(record -> !keys.add(text(record.key())));
    }

    // ---- what is read back -----------------------------------------------------------------------

    private void read() throws Exception {
        Collection<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        Map<String, TopicDescription> topics = new TreeMap<>(admin.describeTopics(names).allTopicNames().get());
        try (KafkaConsumer<byte[], byte[]> all = consumer(false); KafkaConsumer<byte[], byte[]> committed = consumer(true)) {
            for (TopicDescription topic : topics.values()) {
                for (int number = 0; number < topic.partitions().size(); number++) {
                    TopicPartition partition = new TopicPartition(topic.name(), number);
                    describePartition(topic, partition);
                    readPartition(partition, all, committed);
                }
            }
        }
    }

    private void describePartition(TopicDescription topic, TopicPartition partition) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", "partition");
        line.put("topic", partition.topic());
        line.put("partition", partition.partition());
        line.put("topic_id", topic.topicId().toString());
        line.put("log_start", offset(partition, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED));
        line.put("log_end", offset(partition, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED));
        line.put("last_stable", offset(partition, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
        line.put("max_timestamp_offset", offset(partition, OffsetSpec.maxTimestamp(), IsolationLevel.READ_UNCOMMITTED));
        System.out.println(json(line));
    }

    private void readPartition(TopicPartition partition, KafkaConsumer<byte[], byte[]> all,
            KafkaConsumer<byte[], byte[]> committed) {
        Set<Long> decided = new HashSet<>();
        consume(committed, partition).forEach(record -> decided.add(record.offset()));
        for (ConsumerRecord<byte[], byte[]> record : consume(all, partition)) {
            System.out.println(json(describe(record, decided.remove(record.offset()))));
        }
        if (!decided.isEmpty()) {
            throw new IllegalStateException(partition + ": only read_committed saw " + decided);
        }
    }

    private static Map<String, Object> describe(ConsumerRecord<byte[], byte[]> record, boolean committed) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(hex(header.value()));
            headers.add(pair);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", "record");
        line.put("topic", record.topic());
        line.put("partition", record.partition());
        line.put("offset", record.offset());
        line.put("timestamp", record.timestamp());
        line.put("log_append_time", record.timestampType() == TimestampType.LOG_APPEND_TIME);
        line.put("leader_epoch", record.leaderEpoch().orElse(-1));
        line.put("key", hex(record.key()));
        line.put("value", hex(record.value()));
        line.put("headers", headers);
        line.put("committed", committed);
        return line;
    }

    /** Everything in a partition up to the end that the consumer's isolation level sees. */
    private static List<ConsumerRecord<byte[], byte[]>> consume(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        while (consumer.position(partition) < end) {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
        }
        return records;
    }

    private long offset(TopicPartition partition, OffsetSpec spec, IsolationLevel isolation) throws Exception {
        return admin.listOffsets(Map.of(partition, spec), new ListOffsetsOptions(isolation)).all().get().get(partition).offset();
    }

    // ---- small things ----------------------------------------------------------------------------

    /** A producer of bytes whose every send is checked at the next flush. */
    private final class Writer implements AutoCloseable {
        private final KafkaProducer<byte[], byte[]> producer;
        private Exception failure;

        private Writer(String clientId, Map<String, String> settings) {
            Map<String, Object> all = new HashMap<>();
            all.put("bootstrap.servers", bootstrap);
            all.put("client.id", clientId);
            all.put("key.serializer", ByteArraySerializer.class.getName());
            all.put("value.serializer", ByteArraySerializer.class.getName());
            all.putAll(settings);
            producer = new KafkaProducer<>(all);
        }

        private void send(String topic, int partition, long at, String key, String value, List<Header> headers) {
            producer.send(new ProducerRecord<>(topic, partition, at, bytes(key), bytes(value), headers), (sent, error) -> {
                if (error != null) {
                    failure = error;
                }
            });
        }

        private void flush() {
            producer.flush();
            if (failure != null) {
                throw new IllegalStateException(failure);
            }
        }

        private void finish(boolean commit) {
            flush();
            if (commit) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }

        @Override
        public void close() {
            flush();
            producer.close();
        }
    }

    private static Map<String, String> transactional(String id) {
        return Map.of("transactional.id", id, "transaction.timeout.ms", "900000");
    }

    private KafkaConsumer<byte[], byte[]> consumer(boolean committed) {
        return new KafkaConsumer<>(consumerSettings(committed));
    }

    private Map<String, Object> consumerSettings(boolean committed) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "20");
        settings.put("isolation.level", committed ? "read_committed" : "read_uncommitted");
        return settings;
    }

    private static NewTopic topic(String name, int partitions, Map<String, String> settings) {
        return new NewTopic(name, partitions, (short) 1).configs(settings);
    }

    private static Map<String, String> with(Map<String, String> settings, String... more) {
        Map<String, String> all = new HashMap<>(settings);
        for (int i = 0; i < more.length; i += 2) {
            all.put(more[i], more[i + 1]);
        }
        return all;
    }

    private static Header header(String name, String value) {
        return new RecordHeader(name, bytes(value));
    }

    private static long now() {
        return System.currentTimeMillis();
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            return "{" + String.join(", ", map.entrySet().stream().map(e -> json(e.getKey()) + ": " + json(e.getValue())).toList()) + "}";
        }
        if (value instanceof List<?> list) {
            return "[" + String.join(", ", list.stream().map(WriteEverything::json).toList()) + "]";
        }
        if (value instanceof String text) {
            StringBuilder quoted = new StringBuilder("\"");
            for (char c : text.toCharArray()) {
                quoted.append(c < ' ' || c > '~' || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : c);
            }
            return quoted.append('"').toString();
        }
        return String.valueOf(value);
    }
}
