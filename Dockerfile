# The images of the broker, of the operator, and of Spark jobs. `make images` builds them, with docker or buildah.
#
# All have the `tidelog` command too. They run as user 65532 and write nothing but /tmp and, in the broker,
# /data, so their root may be read-only. What they share, the base and the client's libraries, is the same
# layers in both; then come the libraries of each, and last and smallest Tidelog itself.
#
# BASE is any image with Python 3.11 or newer and its venv module; tools/base-image.sh makes one from Debian's
# packages. How a machine reaches its package index comes in as two secrets, both optional, and stands in no
# layer: `pip.conf`, and `ca.pem`, the authorities to trust.
ARG BASE=docker.io/library/python:3.12-slim-bookworm

# Which packages each of them needs, of all that pyproject.toml says: an edit elsewhere in it fetches nothing.
FROM ${BASE} AS needs
WORKDIR /needs
COPY pyproject.toml /
RUN python3 -c 'import tomllib; made = tomllib.load(open("/pyproject.toml", "rb")); project = made["project"]; \
    needs = {"build": made["build-system"]["requires"], "client": project["dependencies"], \
             **project["optional-dependencies"]}; \
    [open(name, "w").write("\n".join(needs[name]) + "\n") for name in ("build", "client", "broker", "operator", "spark")]'

# Every package, at the version of constraints.txt. From here on the network is not needed.
FROM ${BASE} AS packages
RUN python3 -m venv /opt/pip
COPY constraints.txt /constraints.txt
COPY --from=needs /needs /needs
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.pem,target=/run/secrets/ca.pem \
    PIP_CERT="$(ls /run/secrets/ca.pem 2>/dev/null || true)" \
    /opt/pip/bin/pip --disable-pip-version-check --no-cache-dir wheel --quiet --wheel-dir /wheels -c /constraints.txt \
      -r /needs/build -r /needs/client -r /needs/broker -r /needs/operator
# SOURCE_DATE_EPOCH is for the programs that write times into what they make. Bytecode cannot be written where
# the images run, so it is made here, and is valid whatever times its sources get: hence `unchecked-hash`.
ENV SOURCE_DATE_EPOCH=315532800 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_CONSTRAINT=/constraints.txt PIP_NO_CACHE_DIR=1 \
    PIP_PYTHON=/opt/tidelog/bin/python3 PIP_ROOT_USER_ACTION=ignore \
    INSTALL="/opt/pip/bin/pip install --quiet --no-compile --no-warn-script-location" \
    COMPILE="python3 -I -m compileall -q -f --invalidation-mode unchecked-hash"

# What the client needs, which both images have. Of pyarrow a third is left out: its headers, sources and tests,
# copies of libraries for linking, and Flight and S3, each a library of its own that nothing here loads.
FROM packages AS client-libraries
RUN python3 -m venv --without-pip /opt/tidelog && $INSTALL -r /needs/client && \
    rm -f /opt/tidelog/bin/[Aa]ctivate* && (cd /opt/tidelog/lib/python3*/site-packages/pyarrow && \
      rm -rf include includes src tests *.pxi *.pyx *.pxd *_cpp_tests* *[_-]flight* *[_-]s3* *s3fs* \
        libarrow_python*.so libarrow_python*.so.*.*.*) && \
    $COMPILE /opt/tidelog/lib

FROM client-libraries AS broker-libraries
RUN $INSTALL --root /out -r /needs/broker && $COMPILE -s /out -p / /out/opt/tidelog/lib

# The client of Kubernetes that is not asyncio is 25 MB of bytecode, and is not used.
FROM client-libraries AS operator-libraries
RUN $INSTALL --root /out -r /needs/operator && \
    $COMPILE -x '/kubernetes/client/(api|models)/' -s /out -p / /out/opt/tidelog/lib

# Of PySpark its examples are left out, and the libraries of graphs, Hive's server and machine learning; and
# pyspark.zip, which is PySpark once more, without compiled modules, and comes first in the path of Python processes.
# Jobs write to object stores with pyarrow, so here it is whole but for its headers, sources and tests.
FROM client-libraries AS spark-libraries
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.pem,target=/run/secrets/ca.pem \
    PIP_CERT="$(ls /run/secrets/ca.pem 2>/dev/null || true)" PIP_NO_INDEX= \
    /opt/pip/bin/pip --disable-pip-version-check --no-cache-dir wheel --quiet --wheel-dir /wheels -c /constraints.txt \
      -r /needs/spark && \
    $INSTALL --root /out -r /needs/spark && \
    $INSTALL --root /out --force-reinstall --no-deps pyarrow && \
    (cd /out/opt/tidelog/lib/python3*/site-packages/pyarrow && rm -rf include includes src tests) && cd /out/opt/tidelog/lib/python3*/site-packages/pyspark && \
    rm -rf examples data licenses sbin python/lib/pyspark.zip jars/spark-mllib* jars/spark-graphx* jars/breeze* \
      jars/spark-hive-thriftserver* jars/spark-pipelines* && \
    $COMPILE -s /out -p / /out/opt/tidelog/lib

# Tidelog, of it only what the image runs: a change in the operator leaves the broker's image as it is.
FROM client-libraries AS client-code
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY proto proto
COPY client client

FROM client-code AS broker-code
COPY broker broker
RUN $INSTALL --no-deps --root /out . && rm /out/opt/tidelog/bin/tidelog-operator && \
    $COMPILE -s /out -p / /out/opt/tidelog/lib

FROM client-code AS operator-code
COPY operator operator
RUN $INSTALL --no-deps --root /out . && rm /out/opt/tidelog/bin/tidelog-broker && \
    $COMPILE -s /out -p / /out/opt/tidelog/lib

FROM client-code AS spark-code
COPY spark-jobs spark-jobs
RUN $INSTALL --no-deps --root /out . && rm /out/opt/tidelog/bin/tidelog-broker /out/opt/tidelog/bin/tidelog-operator && \
    install -m 755 spark-jobs/entrypoint.sh /out/opt/tidelog/bin/tidelog-spark && \
    $COMPILE -s /out -p / /out/opt/tidelog/lib

# The user has a name and a home, since programs ask for both. Images of Python come without bytecode, too.
FROM ${BASE} AS runtime
RUN echo 'tidelog:x:65532:65532::/tmp:/sbin/nologin' >>/etc/passwd && echo 'tidelog:x:65532:' >>/etc/group && \
    PYTHONDONTWRITEBYTECODE=1 python3 -m compileall -q -f --invalidation-mode unchecked-hash \
      -x '/(config-.*|dist-packages|distutils|ensurepip|idlelib|lib2to3|pydoc_data|site-packages|test|tests|tkinter|turtledemo)/' \
      "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=client-libraries /opt/tidelog /opt/tidelog
ENV PATH=/opt/tidelog/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
USER 65532:65532

FROM runtime AS operator
COPY --from=operator-libraries /out /
COPY --from=operator-code /out /
ENTRYPOINT ["tidelog-operator"]
CMD ["run"]
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Tidelog operator" org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="Makes clusters of Tidelog brokers be what their Kubernetes objects say" \
      org.opencontainers.image.version="${VERSION}"

FROM runtime AS broker
USER root
RUN mkdir /data && chown 65532:65532 /data
USER 65532:65532
COPY --from=broker-libraries /out /
COPY --from=broker-code /out /
ENTRYPOINT ["tidelog-broker"]
CMD ["--help"]
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Tidelog broker" org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="A broker of Tidelog, a durable log with Arrow inside" \
      org.opencontainers.image.version="${VERSION}"

# Driver and executors of Ingestions. Java is Debian's: DEBIAN_MIRROR is for bases without a list of packages.
FROM runtime AS spark
USER root
ARG JAVA=openjdk-17-jre-headless
ARG DEBIAN_MIRROR=http://deb.debian.org/debian
RUN if [ -z "$(ls /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null)" ]; then \
      . /etc/os-release && echo "deb $DEBIAN_MIRROR $VERSION_CODENAME main" >/etc/apt/sources.list; fi && \
    apt-get -qq update && apt-get -qq install -y --no-install-recommends "$JAVA" tini procps && \
    ln -s "$(dirname "$(dirname "$(readlink -f /usr/bin/java)")")" /opt/java && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log /usr/share/doc /usr/share/man && \
    ln -s "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib", vars={"base": "/opt/tidelog"}))')/pyspark" \
      /opt/spark
ENV JAVA_HOME=/opt/java SPARK_HOME=/opt/spark PYSPARK_PYTHON=/opt/tidelog/bin/python3
USER 65532:65532
COPY --from=spark-libraries /out /
COPY --from=spark-code /out /
ENTRYPOINT ["tidelog-spark"]
CMD ["python3", "-m", "tidelog_spark.jobs", "--help"]
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Tidelog Spark" org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="Driver and executors of Spark jobs that read and write Tidelog" \
      org.opencontainers.image.version="${VERSION}"
