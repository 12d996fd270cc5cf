"""Apache Kafka in KRaft mode from Maven's jars; clients: its own Java tools, aiokafka, confluent-kafka."""
