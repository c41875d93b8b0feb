# The command line and the service, compiled code included:
#
#   docker build --tag freshband .
#   docker run --rm freshband simulate --policies random,bayes
#   docker run --rm --publish 127.0.0.1:8371:8371 --volume state:/state --env FRESHBAND_TOKEN=... \
#       freshband serve --host 0.0.0.0 --clients 20 --channels 30 --state /state/state.npz
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/freshband \
    && /opt/freshband/bin/pip install --no-cache-dir --no-compile --constraint constraints.txt '.[serve]'

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 freshband && install -d -o freshband /state /work
COPY --from=build /opt/freshband /opt/freshband
ENV PATH=/opt/freshband/bin:$PATH NUMBA_CACHE_DIR=/var/cache/freshband
RUN install -d -o freshband "$NUMBA_CACHE_DIR"
USER freshband
WORKDIR /work
# For the CPU that builds the image; on another one the first use compiles again.
RUN python -c 'import freshband; freshband.warm_up("bayes", "glr-cucb")'
EXPOSE 8371
VOLUME /state
ENTRYPOINT ["freshband"]
CMD ["--help"]
