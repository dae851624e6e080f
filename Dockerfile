# The image of the operator and the API: headrace with the extra `operator`. `make images` builds it.
#
# PYTHON_IMAGE is any Debian with python3 and its venv module; where the official image cannot be pulled, `make images`
# brings one of its own. BUILD_IMAGE is the same with what it takes to reach the package index from here, such as the
# certificate of a proxy; nothing of it but the wheels reaches the image. The two have the same Python, because a
# virtual environment points to it.
ARG PYTHON_IMAGE=python:3.13-slim
ARG BUILD_IMAGE=${PYTHON_IMAGE}

FROM ${BUILD_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# What changes seldom comes first, so that a change to our own code builds only our own wheel.
COPY requirements-build.lock ./
RUN python3 -m venv /tools && /tools/bin/pip install --quiet --require-hashes --requirement requirements-build.lock
COPY requirements-operator.lock ./
RUN /tools/bin/pip wheel --quiet --require-hashes --wheel-dir /wheels --requirement requirements-operator.lock \
    && python3 -m venv --without-pip /opt/headrace \
    && /tools/bin/pip --python /opt/headrace install --quiet --no-index --no-deps --no-compile /wheels/*.whl

COPY pyproject.toml LICENSE ./
COPY src ./src
COPY operator ./operator
RUN /tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /own . \
    && /tools/bin/pip --python /opt/headrace install --quiet --no-index --no-deps --no-compile /own/*.whl
# The root is read-only when this runs, so what is not compiled here would be compiled at every start. The files are
# trusted as they are: nobody changes a source in an image.
RUN /opt/headrace/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/headrace/lib

FROM ${PYTHON_IMAGE}
# The official image comes without compiled files; Debian's Python has them, and then there is nothing to do.
RUN python3 -m compileall -q -x '(site|dist)-packages|/(test|tests|idlelib|lib2to3|turtledemo)/' \
    "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/headrace /opt/headrace
ENV PATH=/opt/headrace/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number, so that Kubernetes can check runAsNonRoot without looking into the image.
USER 65532:65532
WORKDIR /tmp
# No shell in between: SIGTERM arrives at headrace itself.
ENTRYPOINT ["/opt/headrace/bin/headrace"]

ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="headrace" \
      org.opencontainers.image.description="The operator and API of Headrace, a Kubernetes-native priority task queue." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
