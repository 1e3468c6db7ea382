# "make certify" and "make test" in a container:
#   docker build --tag surefoot .
#   docker run --rm surefoot                # make certify
#   docker run --rm surefoot make test
# To keep the run directory: docker run --rm --volume "$PWD/runs:/surefoot/runs" surefoot
FROM python:3.11-bookworm

# What make test wants a browser for is the HTML report; installed here, it needs no network when it runs.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends chromium chromium-driver \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /surefoot
COPY . .
RUN make setup
CMD ["make", "certify"]
