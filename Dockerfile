# syntax=docker/dockerfile:1
# Targets: gpu (the last, so the default), cpu, training. docs/operations.md says how to build and run each.
#
# onnxruntime-gpu 1.31 links CUDA 13 (libcudart.so.13, libcublas.so.13) and opens cuDNN 9: base image and package move
# together, or the CUDA provider does not start.
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-cudnn-runtime-ubuntu24.04
ARG PYTHON_IMAGE=python:3.12-slim-bookworm


# -- what both serving images share ----------------------------------------------------------------------------------

# Only what is installed: no training, so that nothing in the image asks for torch.
FROM scratch AS source
COPY pyproject.toml constraints.txt README.md LICENSE /source/
COPY service/ /source/service/


FROM ${PYTHON_IMAGE} AS build-cpu
WORKDIR /source
COPY --from=source /source/ ./
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/portcullis \
    && /opt/portcullis/bin/python -m pip install -c constraints.txt '.[cpu]' \
    && rm /opt/portcullis/bin/portcullis-train \
    && /opt/portcullis/bin/python -m pip uninstall --yes pip


# The interpreter of Ubuntu 24.04 is Python 3.12, and a virtual environment works only where it was made.
FROM ${CUDA_IMAGE} AS cuda-python
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/*


FROM cuda-python AS cuda-build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*


FROM cuda-build AS build-gpu
# The same version as onnxruntime in constraints.txt; a test compares them.
ARG ONNXRUNTIME_GPU_VERSION=1.31.1
WORKDIR /source
COPY --from=source /source/ ./
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/portcullis \
    && /opt/portcullis/bin/python -m pip install -c constraints.txt '.[gpu]' "onnxruntime-gpu==${ONNXRUNTIME_GPU_VERSION}" \
    && rm /opt/portcullis/bin/portcullis-train \
    && /opt/portcullis/bin/python -m pip uninstall --yes pip


# -- training on a GPU -----------------------------------------------------------------------------------------------

# PyTorch's wheels from PyPI bring CUDA libraries of their own; ONNX Runtime uses those of the base image.
FROM cuda-build AS training
ARG ONNXRUNTIME_GPU_VERSION=1.31.1
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY service/ service/
COPY training/ training/
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/portcullis \
    && /opt/portcullis/bin/python -m pip install -c constraints.txt '.[gpu,training]' "onnxruntime-gpu==${ONNXRUNTIME_GPU_VERSION}" \
    && groupadd --gid 10001 portcullis \
    && useradd --uid 10001 --gid portcullis --no-log-init --create-home portcullis \
    && install -d -o portcullis -g portcullis /workspace
ENV PATH=/opt/portcullis/bin:$PATH PYTHONUNBUFFERED=1 ORT_DISABLE_TELEMETRY=1
WORKDIR /workspace
USER 10001:10001
ENTRYPOINT ["portcullis-train"]
CMD ["run", "--recipe", "digits"]


# -- serving on the CPU ----------------------------------------------------------------------------------------------

FROM ${PYTHON_IMAGE} AS cpu
RUN groupadd --gid 10001 portcullis \
    && useradd --uid 10001 --gid portcullis --no-log-init --no-create-home --shell /usr/sbin/nologin portcullis \
    && install -d -o portcullis -g portcullis /var/lib/portcullis
COPY --from=build-cpu /opt/portcullis/ /opt/portcullis/
COPY models/ /srv/models/
# Inside a container the address must be the container's own, not loopback.
ENV PATH=/opt/portcullis/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    ORT_DISABLE_TELEMETRY=1 \
    PORTCULLIS_HOST=0.0.0.0 \
    PORTCULLIS_PORT=8000 \
    PORTCULLIS_MODELS=/srv/models \
    PORTCULLIS_RUNTIME_DIRECTORY=/var/lib/portcullis \
    PORTCULLIS_PROVIDERS=cpu
WORKDIR /srv
USER 10001:10001
# The only place that is written to, so the root filesystem can be read-only.
VOLUME ["/var/lib/portcullis"]
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['PORTCULLIS_PORT'] + '/readyz', timeout=2)"]
ENTRYPOINT ["portcullis"]
CMD ["serve"]


# -- serving on a GPU: the default -----------------------------------------------------------------------------------

FROM cuda-python AS gpu
RUN groupadd --gid 10001 portcullis \
    && useradd --uid 10001 --gid portcullis --no-log-init --no-create-home --shell /usr/sbin/nologin portcullis \
    && install -d -o portcullis -g portcullis /var/lib/portcullis
COPY --from=build-gpu /opt/portcullis/ /opt/portcullis/
COPY models/ /srv/models/
# The provider is asked for by name: without a GPU the container stops and says so, rather than crawl on the CPU.
ENV PATH=/opt/portcullis/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    ORT_DISABLE_TELEMETRY=1 \
    PORTCULLIS_HOST=0.0.0.0 \
    PORTCULLIS_PORT=8000 \
    PORTCULLIS_MODELS=/srv/models \
    PORTCULLIS_RUNTIME_DIRECTORY=/var/lib/portcullis \
    PORTCULLIS_PROVIDERS=cuda
WORKDIR /srv
USER 10001:10001
VOLUME ["/var/lib/portcullis"]
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['PORTCULLIS_PORT'] + '/readyz', timeout=2)"]
ENTRYPOINT ["portcullis"]
CMD ["serve"]
