import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produces values "partition/number" to all partitions of a topic with an idempotent producer that has five requests
 * in flight, until its standard input ends. Prints each value that was delivered; fails if one was not.
 *
 * <pre>ProduceInOrder 127.0.0.1:port topic partitions</pre>
 */
public final class ProduceInOrder {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "enable.idempotence", "true",
            "batch.size", "100",
            "linger.ms", "1",
            "retry.backoff.ms", "20",
            "retry.backoff.max.ms", "100");
        StringBuffer delivered = new StringBuffer();
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; System.in.available() == 0; number++) {
                for (int partition = 0; partition < partitions; partition++) {
                    String value = partition + "/" + number;
                    byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
                    producer.send(new ProducerRecord<>(topic, partition, null, bytes), (metadata, error) -> {
                        if (error == null) {
                            delivered.append(value).append('\n');
                        } else {
                            failure.compareAndSet(null, error);
                        }
                    });
                }
                Thread.sleep(3);
            }
        }
        System.out.print(delivered);
        if (failure.get() != null) {
            throw failure.get();
        }
    }
}
