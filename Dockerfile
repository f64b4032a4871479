# The image of the manager: one static binary, and no shell beside it.
#
#   docker build --build-arg VERSION=v0.1.0 -t ostiary .
#
# BUILDER and BASE may name mirrors. The digest is that of the image index, for every
# platform; update it together with the version. scratch is empty and has none. Where no
# registry can be reached, `make image` makes the same image from Go alone.
ARG BUILDER=golang:1.26.8@sha256:3c3e25a4da13fd0478eed2df1eb35a0e667094a7124d3993a6a1d30f71c17e79
ARG BASE=scratch
ARG VERSION=unknown

FROM --platform=$BUILDPLATFORM ${BUILDER} AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
WORKDIR /src
# Modules first: they change less often than the code and stay in the cache.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -tags=grpcnotrace -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /ostiary .

FROM ${BASE}
ARG VERSION
ARG REVISION=
LABEL org.opencontainers.image.title="ostiary" \
      org.opencontainers.image.description="Kubernetes admission operator: policies become webhooks, with their certificates" \
      org.opencontainers.image.source="https://github.com/ostiary/ostiary" \
      org.opencontainers.image.documentation="https://github.com/ostiary/ostiary/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Webhooks of others that are registered by URL and without a CA bundle are tried
# with these.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /LICENSE
COPY --from=build /ostiary /ostiary
# A user without a name, because a scratch image has no /etc/passwd.
USER 65532:65532
ENTRYPOINT ["/ostiary"]
