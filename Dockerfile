# The image holds a Python environment and nothing else: no compiler, no shell scripts, no development tools.
#
# What it is built on is `pinned`, or any other image with that Python and a libc that wheels are made for (--build-arg BASE=…). The digest
# is that of the index of all architectures. It stands in the first FROM since Dependabot renews no ARG.
ARG BASE=pinned
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS pinned

FROM ${BASE} AS build
WORKDIR /src
COPY setup.cfg pyproject.toml requirements.txt requirements-build.txt README.md LICENSE ./
# Not operator/allaboard_sandbox, which is for the demo and the tests.
COPY operator/allaboard operator/allaboard
COPY crds crds
COPY examples examples
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Wheels only, since there is no compiler here, and only those whose hashes are known, also of what the program's own wheel is built with, in
# an environment that stays behind. The image's has no pip of its own, and no package's own tests. Its modules are compiled to bytecode, but for the thousands of the Kubernetes client that nobody imports.
RUN python -m venv --without-pip /opt/allaboard \
    && python -m pip --python /opt/allaboard/bin/python install --no-compile --require-hashes --only-binary :all: --requirement requirements.txt \
    && python -m venv builder \
    && builder/bin/python -m pip install --require-hashes --only-binary :all: --requirement requirements-build.txt \
    && builder/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir wheels . \
    && python -m pip --python /opt/allaboard/bin/python install --no-compile --no-deps --no-index wheels/*.whl \
    && find /opt/allaboard -type d -name tests -prune -exec rm -r {} + \
    && sed -i '/\/tests\//d' /opt/allaboard/lib/python*/site-packages/*.dist-info/RECORD \
    && /opt/allaboard/bin/python -m compileall -q -x 'kubernetes/(aio/)?client/(api|models)/' /opt/allaboard/lib

FROM ${BASE}
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Allaboard" \
      org.opencontainers.image.description="A gang scheduler for Kubernetes: all members of a job are bound, or none." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/allaboard /opt/allaboard
# Everything was compiled above, and the root file system may be read-only. Kopf asks for a user name, which a number alone hasn't;
# the search is one thread a process, so that a pool of threads for each core of the node would only take memory.
ENV PATH=/opt/allaboard/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1 \
    HOME=/tmp \
    USER=allaboard
WORKDIR /tmp
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["allaboard", "run"]
