# Proximo on CPUs.
#
#     docker build -t proximo .
#     docker run --rm --user "$(id -u)" -e HOME=/tmp -v "$PWD/runs:/proximo/runs" proximo train --env-id CartPole-v1 --run-dir runs/first
#
# TORCH_INDEX is an optional index with CPU builds of torch, which are smaller than the default build of several GB.
FROM python:3.11-slim

ARG EXTRAS=box2d,atari,mujoco,export
ARG TORCH_INDEX=""
ENV OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 MUJOCO_GL=egl PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1

RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends libegl1 libgl1 libglib2.0-0 \
    && rm -rf /var/lib/apt/lists/*

COPY constraints.txt /opt/proximo/
RUN pip install -q -c /opt/proximo/constraints.txt ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch

COPY pyproject.toml README.md LICENSE MANIFEST.in /opt/proximo/
COPY proximo /opt/proximo/proximo
RUN pip install -q -c /opt/proximo/constraints.txt "/opt/proximo[${EXTRAS}]"

RUN useradd --create-home --uid 1000 user && mkdir -p /proximo/runs && chown -R user /proximo
USER user
WORKDIR /proximo
ENTRYPOINT ["proximo"]
CMD ["--help"]
