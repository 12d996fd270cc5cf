import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
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
 * again in one warm JVM. {@code Load e2e BOOTSTRAP TOPIC SIZE SECONDS RATE}: records at a fixed
 * rate, read by a consumer in the same JVM, latencies from the moment each was due. Prints one JSON
 * object.
 *
 * <p>{@code Load steady BOOTSTRAP TOPIC SIZE RATE}: records at a fixed rate until standard input
 * ends; prints "A", nanoseconds since the epoch, for each acknowledgement, and "E" for an error.
 */
public final class Load {
  private static final long WARM_NANOS = 2_000_000_000L;
  private static final int LATENCIES_MAX = 4_000_000;
  private static final int E2E_WARM_SECONDS = 4;
  private static final long ARRIVE_SECONDS_MAX = 20;
  private static final Duration POLL = Duration.ofMillis(100);

  private Load() {}

  public static void main(String[] arguments) throws Exception {
    String bootstrap = arguments[1];
    TopicPartition partition = new TopicPartition(arguments[2], 0);
    switch (arguments[0]) {
      case "serial" ->
          serial(bootstrap, partition, Integer.parseInt(arguments[3]), nanos(arguments[4]));
      case "consume" ->
          consume(bootstrap, partition, Long.parseLong(arguments[3]), nanos(arguments[4]));
      case "e2e" ->
          endToEnd(
              bootstrap,
              partition,
              Integer.parseInt(arguments[3]),
              Double.parseDouble(arguments[4]),
              Integer.parseInt(arguments[5]));
      case "steady" ->
          steady(
              bootstrap,
              partition,
              Integer.parseInt(arguments[3]),
              Integer.parseInt(arguments[4]));
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
    Map<String, Object> config = producing(bootstrap);
    config.put("linger.ms", "0");
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
    printLatencies(Arrays.copyOf(latencies, count));
  }

  private static void endToEnd(
      String bootstrap, TopicPartition partition, int size, double seconds, int rate)
      throws Exception {
    int warm = E2E_WARM_SECONDS * rate;
    int total = warm + (int) (seconds * rate);
    long[] latencies = new long[total];
    CountDownLatch ready = new CountDownLatch(1);
    CountDownLatch arrived = new CountDownLatch(total);
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", bootstrap);
    config.put("key.deserializer", ByteArrayDeserializer.class.getName());
    config.put("value.deserializer", ByteArrayDeserializer.class.getName());
    Thread reader =
        new Thread(
            () -> {
              try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
                consumer.assign(List.of(partition));
                consumer.seekToEnd(List.of(partition));
                consumer.position(partition);
                ready.countDown();
                while (arrived.getCount() > 0) {
                  for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    ByteBuffer value = ByteBuffer.wrap(record.value());
                    latencies[value.getInt()] = System.nanoTime() - value.getLong();
                    arrived.countDown();
                  }
                }
              }
            });
    reader.setDaemon(true);
    reader.start();
    ready.await();
    Map<String, Object> producing = producing(bootstrap);
    producing.put("linger.ms", "0");
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producing)) {
      long began = System.nanoTime();
      for (int i = 0; i < total; i++) {
        long due = began + (long) (i * 1e9 / rate);
        waitUntil(due);
        byte[] value = ByteBuffer.allocate(size).putInt(i).putLong(due).array();
        producer.send(new ProducerRecord<>(partition.topic(), 0, null, value));
      }
      producer.flush();
    }
    if (!arrived.await(ARRIVE_SECONDS_MAX, TimeUnit.SECONDS)) {
      throw new IllegalStateException(arrived.getCount() + " records did not arrive");
    }
    printLatencies(Arrays.copyOfRange(latencies, warm, total));
  }

  private static void steady(String bootstrap, TopicPartition partition, int size, int rate)
      throws Exception {
    Thread ending =
        new Thread(
            () -> {
              try {
                while (System.in.read() >= 0) {}
              } catch (java.io.IOException closed) {
                // As good as its end.
              }
              Runtime.getRuntime().halt(0);
            });
    ending.setDaemon(true);
    ending.start();
    byte[] value = new byte[size];
    new Random(7).nextBytes(value);
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producing(bootstrap))) {
      long began = System.nanoTime();
      for (long i = 0; ; i++) {
        waitUntil(began + (long) (i * 1e9 / rate));
        producer.send(
            new ProducerRecord<>(partition.topic(), 0, null, value),
            (metadata, error) -> {
              Instant now = Instant.now();
              System.out.println(
                  error == null
                      ? "A " + (now.getEpochSecond() * 1_000_000_000L + now.getNano())
                      : "E " + error);
            });
      }
    }
  }

  private static Map<String, Object> producing(String bootstrap) {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", bootstrap);
    config.put("acks", "all");
    config.put("key.serializer", ByteArraySerializer.class.getName());
    config.put("value.serializer", ByteArraySerializer.class.getName());
    return config;
  }

  private static void waitUntil(long due) {
    for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
      LockSupport.parkNanos(left);
    }
  }

  private static void printLatencies(long[] sorted) {
    Arrays.sort(sorted);
    System.out.printf(
        Locale.ROOT,
        "{\"value\": %1$f, \"p50_ms\": %1$f, \"p99_ms\": %2$f, \"p99.9_ms\": %3$f, \"max_ms\": %4$f,"
            + " \"count\": %5$d}%n",
        at(sorted, 0.5), at(sorted, 0.99), at(sorted, 0.999), at(sorted, 1), sorted.length);
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
