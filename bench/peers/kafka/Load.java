import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What Kafka's own tools do not measure, for the benchmark of Tidelog.
 *
 * <p>{@code Load serial BOOTSTRAP TOPIC SIZE SECONDS}: one record in flight, after some seconds of
 * warm-up. {@code Load consume BOOTSTRAP TOPIC RECORDS SECONDS}: reads the topic's records again and
 * again in one warm JVM. Prints one JSON object.
 */
public final class Load {
  private static final long WARM_NANOS = 2_000_000_000L;
  private static final int LATENCIES_MAX = 4_000_000;

  private Load() {}

  public static void main(String[] arguments) throws Exception {
    String bootstrap = arguments[1];
    TopicPartition partition = new TopicPartition(arguments[2], 0);
    switch (arguments[0]) {
      case "serial" ->
          serial(bootstrap, partition, Integer.parseInt(arguments[3]), nanos(arguments[4]));
      case "consume" ->
          consume(bootstrap, partition, Long.parseLong(arguments[3]), nanos(arguments[4]));
      default -> throw new IllegalArgumentException("no work is called " + arguments[0]);
    }
  }

  private static long nanos(String seconds) {
    return (long) (Double.parseDouble(seconds) * 1e9);
  }

  private static void serial(String bootstrap, TopicPartition partition, int size, long limit)
      throws Exception {
    byte[] value = new byte[size];
    new Random(7).nextBytes(value);
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", bootstrap);
    config.put("acks", "all");
    config.put("linger.ms", "0");
    config.put("key.serializer", ByteArraySerializer.class.getName());
    config.put("value.serializer", ByteArraySerializer.class.getName());
    long[] latencies = new long[LATENCIES_MAX];
    int count = 0;
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
      for (long until = System.nanoTime() + WARM_NANOS; System.nanoTime() < until; ) {
        producer.send(new ProducerRecord<>(partition.topic(), 0, null, value)).get();
      }
      for (long until = System.nanoTime() + limit; count < LATENCIES_MAX; ) {
        long began = System.nanoTime();
        if (began >= until) {
          break;
        }
        producer.send(new ProducerRecord<>(partition.topic(), 0, null, value)).get();
        latencies[count++] = System.nanoTime() - began;
      }
    }
    long[] sorted = Arrays.copyOf(latencies, count);
    Arrays.sort(sorted);
    System.out.printf(
        Locale.ROOT,
        "{\"value\": %1$f, \"p50_ms\": %1$f, \"p99_ms\": %2$f, \"p99.9_ms\": %3$f, \"max_ms\": %4$f,"
            + " \"count\": %5$d}%n",
        at(sorted, 0.5), at(sorted, 0.99), at(sorted, 0.999), at(sorted, 1), count);
  }

  private static double at(long[] sorted, double share) {
    return sorted[(int) (share * (sorted.length - 1))] / 1e6;
  }

  private static void consume(String bootstrap, TopicPartition partition, long records, long limit) {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", bootstrap);
    config.put("key.deserializer", ByteArrayDeserializer.class.getName());
    config.put("value.deserializer", ByteArrayDeserializer.class.getName());
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
      consumer.assign(List.of(partition));
      for (long until = System.nanoTime() + WARM_NANOS; System.nanoTime() < until; ) {
        readAll(consumer, partition, records);
      }
      long bytes = 0;
      long count = 0;
      long began = System.nanoTime();
      while (System.nanoTime() - began < limit) {
        bytes += readAll(consumer, partition, records);
        count += records;
      }
      double seconds = (System.nanoTime() - began) / 1e9;
      System.out.printf(
          Locale.ROOT,
          "{\"value\": %f, \"records\": %d, \"seconds\": %f, \"value_mb_per_s\": %f}%n",
          count / seconds, count, seconds, bytes / seconds / 1e6);
    }
  }

  private static long readAll(
      KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long records) {
    consumer.seekToBeginning(List.of(partition));
    long seen = 0;
    long bytes = 0;
    while (seen < records) {
      for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
        seen++;
        bytes += record.value().length;
      }
    }
    return bytes;
  }
}
