# The image holds a Python environment and nothing else: no compiler, no shell scripts, no development tools.
#
# The base is `pinned`, or any other image with that Python and a libc that wheels are built for (--build-arg BASE=…). The digest is the one
# of the index of all architectures. It stands in a FROM, since Dependabot doesn't update an ARG.
ARG BASE=pinned
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS pinned

FROM ${BASE} AS build
WORKDIR /src
COPY setup.cfg pyproject.toml requirements.txt requirements-build.txt README.md LICENSE ./
# Without operator/allaboard_sandbox, which is for the demo and the tests.
COPY operator/allaboard operator/allaboard
COPY crds crds
COPY examples examples
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Only wheels are installed, since there is no compiler, and only wheels with known hashes. That holds also for the tools that build the program's
# own wheel, in an environment that isn't copied into the image. The image's environment has no pip, and no tests of packages. Its modules are
# compiled to bytecode, except thousands of modules of the Kubernetes client that are never imported.
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
# Everything was compiled above, and the root file system may be read-only. Kopf needs a user name, which a user id without an entry lacks.
# A search uses one thread in each process, so a pool of threads for the cores of the node would only take memory.
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
