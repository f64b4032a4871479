# The image of the manager: one static binary, and no shell beside it.
#
#   docker build --build-arg VERSION=v0.1.0 -t ostiary .
#
# BUILDER and BASE may name mirrors, or pinned digests.
ARG BUILDER=golang:1.26
ARG BASE=scratch

FROM --platform=$BUILDPLATFORM ${BUILDER} AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=unknown
WORKDIR /src
# Modules first: they change less often than the code and stay in the cache.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /ostiary .

FROM ${BASE}
COPY --from=build /src/LICENSE /LICENSE
COPY --from=build /ostiary /ostiary
# A user without a name, because a scratch image has no /etc/passwd.
USER 65532:65532
ENTRYPOINT ["/ostiary"]
