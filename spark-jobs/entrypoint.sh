#!/bin/sh
# The entry point of the image `spark`: the driver of an Ingestion, or an executor, which Spark starts with these
# variables. Anything else is run as it is.
set -eu

case "${1:-}" in
driver)
  exec tini -s -- python3 -m tidelog_spark.kubernetes.driver
  ;;
executor)
  # The driver's Java options come as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on, and may contain spaces.
  set --
  number=0
  while eval "[ -n \"\${SPARK_JAVA_OPT_$number+set}\" ]"; do
    eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
    number=$((number + 1))
  done
  exec tini -s -- "$JAVA_HOME/bin/java" "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "$SPARK_HOME/jars/*${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
*)
  exec tini -s -- "$@"
  ;;
esac
