# syntax=docker/dockerfile:1
# Targets: gpu (the last, so the default), cpu, training. docs/operations.md says how to build and run each.
#
# One base for all of them: CUDA and cuDNN come as wheels, as they do for `make serve` on a host with nothing but the
# driver, so both go one way. Packages are installed before the source is copied, by their hashes (deploy/locks,
# written by `make lock`): a changed line of code does not install them anew.
ARG PYTHON_IMAGE=python:3.12-slim-bookworm


# -- packages --------------------------------------------------------------------------------------------------------

FROM ${PYTHON_IMAGE} AS packages-cpu
COPY deploy/locks/ /locks/
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/portcullis \
    && /opt/portcullis/bin/python -m pip install --no-deps --require-hashes -r /locks/build.txt -r /locks/cpu.txt


FROM ${PYTHON_IMAGE} AS packages-gpu
COPY deploy/locks/ /locks/
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/portcullis \
    && /opt/portcullis/bin/python -m pip install --no-deps --require-hashes -r /locks/build.txt -r /locks/gpu.txt


# -- the package itself ----------------------------------------------------------------------------------------------

# Only what is installed: no training, so that nothing in the image asks for torch.
FROM scratch AS source
COPY pyproject.toml README.md LICENSE /source/
COPY service/ /source/service/


FROM packages-cpu AS build-cpu
COPY --from=source /source/ /source/
RUN /opt/portcullis/bin/python -m pip install --no-deps --no-build-isolation --no-index /source \
    && rm /opt/portcullis/bin/portcullis-train \
    && /opt/portcullis/bin/python -m pip uninstall --yes setuptools pip


FROM packages-gpu AS build-gpu
COPY --from=source /source/ /source/
RUN /opt/portcullis/bin/python -m pip install --no-deps --no-build-isolation --no-index /source \
    && rm /opt/portcullis/bin/portcullis-train \
    && /opt/portcullis/bin/python -m pip uninstall --yes setuptools pip


# -- training on a GPU -----------------------------------------------------------------------------------------------

# PyTorch and ONNX Runtime share one set of CUDA's wheels: constraints.txt has versions that suit both.
FROM ${PYTHON_IMAGE} AS training
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY service/ service/
COPY training/ training/
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/portcullis \
    && /opt/portcullis/bin/python -m pip install -c constraints.txt '.[gpu,training,photos]' \
    && groupadd --gid 10001 portcullis \
    && useradd --uid 10001 --gid portcullis --no-log-init --create-home portcullis \
    && install -d -o portcullis -g portcullis /workspace
ENV PATH=/opt/portcullis/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /workspace
USER 10001:10001
ENTRYPOINT ["portcullis-train"]
CMD ["run", "--recipe", "digits"]


# -- what both serving images share ----------------------------------------------------------------------------------

FROM ${PYTHON_IMAGE} AS serving
RUN groupadd --gid 10001 portcullis \
    && useradd --uid 10001 --gid portcullis --no-log-init --no-create-home --shell /usr/sbin/nologin portcullis \
    && install -d -o portcullis -g portcullis /var/lib/portcullis
# Inside a container the address must be the container's own, not loopback.
ENV PATH=/opt/portcullis/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    ORT_DISABLE_TELEMETRY=1 \
    PORTCULLIS_HOST=0.0.0.0 \
    PORTCULLIS_PORT=8000 \
    PORTCULLIS_MODELS=/srv/models \
    PORTCULLIS_RUNTIME_DIRECTORY=/var/lib/portcullis
WORKDIR /srv
# The only place that is written to, so the root filesystem can be read-only.
VOLUME ["/var/lib/portcullis"]
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, ssl, urllib.request as r; e = os.environ; s = 's' if e.get('PORTCULLIS_TLS_CERTIFICATE_FILE') else ''; r.urlopen('http' + s + '://127.0.0.1:' + e['PORTCULLIS_PORT'] + '/readyz', timeout=2, context=ssl._create_unverified_context() if s else None)"]
ENTRYPOINT ["portcullis"]
CMD ["serve"]


# -- serving on the CPU ----------------------------------------------------------------------------------------------

FROM serving AS cpu
COPY --from=build-cpu /opt/portcullis/ /opt/portcullis/
COPY models/ /srv/models/
ENV PORTCULLIS_PROVIDERS=cpu
USER 10001:10001


# -- serving on a GPU: the default -----------------------------------------------------------------------------------

FROM serving AS gpu
COPY --from=build-gpu /opt/portcullis/ /opt/portcullis/
COPY models/ /srv/models/
# The provider is asked for by name: without a GPU the container stops and says so, rather than crawl on the CPU. What
# the driver compiles for a card that is newer than the wheels is kept, so that the next start need not wait for it.
ENV PORTCULLIS_PROVIDERS=cuda \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    CUDA_CACHE_PATH=/var/lib/portcullis/cuda
USER 10001:10001
