package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// smallBody is the size, in bytes, up to which a body is not counted: MaxConnections bounds the memory of small bodies.
// Nearly all reviews are smaller.
const smallBody = 32 << 10

// maxReviewedBody is the size, in bytes, of the largest review of a WebhookPolicy. The API server stores policies of up
// to 1.5 MiB, and an UPDATE carries two. It escapes <, > and & with six bytes; at most half of a policy needs that. So
// 2 x 1.5 MiB x 3, with the envelope, is 10 MiB.
const maxReviewedBody = 10 << 20

// bodyReader reads bodies into memory. It bounds the size of each body, the memory of all of them, and the read time.
//
// Bodies do not come from a pool: the request's objects are slices of the body, and evaluators may retain them.
type bodyReader struct {
	limit   int64
	memory  *bodyMemory
	timeout time.Duration // of a small body, and the grace period of a large one
}

func newBodyReader(limit, total int64) *bodyReader {
	return &bodyReader{limit: limit, memory: newBodyMemory(total), timeout: 5 * time.Second}
}

// read returns the whole body. The caller must call done when it no longer uses the body.
func (b *bodyReader) read(ctx context.Context, w http.ResponseWriter, r *http.Request, to endpoint) (body []byte, done func(), err error) {
	limit := b.limitOf(to)
	switch size := r.ContentLength; {
	case size > limit:
		b.stopReading(w)
		return nil, nil, tooLarge(limit)
	case size < 0 || size > smallBody:
		return b.readLarge(ctx, w, r, limit)
	}
	body = make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, nil, b.readFailure(err, limit)
	}
	b.setDeadline(w, time.Time{})
	return body, func() {}, nil
}

func (b *bodyReader) limitOf(to endpoint) int64 {
	switch to {
	case canaryEndpoint:
		return min(b.limit, smallBody) // small bodies never wait for memory
	case reviewEndpoint:
		return min(b.limit, maxReviewedBody)
	default:
		return b.limit
	}
}

// readLarge reads a body that is large or has no Content-Length. A body reserves at most twice the bytes that have
// arrived, so a client that only announces a body reserves nothing.
func (b *bodyReader) readLarge(ctx context.Context, w http.ResponseWriter, r *http.Request, limit int64) ([]byte, func(), error) {
	l := &largeBody{from: sourceOf(r), began: time.Now(), waitLeft: min(maxWait(ctx), maxMemoryWait)}
	l.stop = func() { b.stopReading(w) }
	source := r.Body
	if r.ContentLength < 0 {
		source = http.MaxBytesReader(w, r.Body, limit)
	} else {
		limit = r.ContentLength
	}
	body, err := b.readGrowing(ctx, w, source, l, limit, r.ContentLength >= 0)
	if err == nil && !b.memory.finish(l) {
		err = errMemory
	}
	if err != nil {
		b.memory.release(l)
		return nil, nil, b.readFailure(err, limit)
	}
	b.setDeadline(w, time.Time{})
	return body, func() { b.memory.release(l) }, nil
}

// readGrowing reads to the end of the source. If exact is true it reads exactly limit bytes.
func (b *bodyReader) readGrowing(ctx context.Context, w http.ResponseWriter, source io.Reader, l *largeBody, limit int64, exact bool) ([]byte, error) {
	const deadlineStep = 128 << 10
	body := make([]byte, 0, min(limit, smallBody))
	next := make([]byte, 1)
	for extendedAt := int64(0); !exact || int64(len(body)) < limit; {
		into := body[len(body):cap(body)]
		full := len(into) == 0
		if full { // the body grows only when another byte has arrived
			into = next
		}
		n, err := source.Read(into)
		if full && n > 0 {
			size := min(2*int64(cap(body)), limit)
			if err := b.memory.grow(ctx, l, size); err != nil {
				b.stopReading(w)
				return nil, err
			}
			body = append(append(make([]byte, 0, size), body...), next[0])
			extendedAt = 0
		} else {
			body = body[:len(body)+n]
		}
		l.received.Store(int64(len(body)))
		switch {
		case l.dropped.Load():
			return nil, errMemory
		case errors.Is(err, io.EOF) && (!exact || int64(len(body)) == limit):
			return body, nil
		case err != nil:
			return nil, err
		}
		if int64(len(body)) >= extendedAt+deadlineStep || extendedAt == 0 {
			extendedAt = int64(len(body))
			b.extendDeadline(ctx, w, l)
		}
	}
	return body, nil
}

// extendDeadline sets the read deadline from the bytes that have arrived: after the grace period a body must arrive at
// minRate. The deadline is never later than that of the caller.
func (b *bodyReader) extendDeadline(ctx context.Context, w http.ResponseWriter, l *largeBody) {
	deadline := l.began.Add(b.timeout + durationAt(minRate, l.received.Load()))
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	b.setDeadline(w, deadline)
	if l.dropped.Load() { // the deadline above must not replace the one that the drop has set
		b.stopReading(w)
	}
}

// sourceOf returns the client address of a request, or the zero address if it has none.
func sourceOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return from.Addr().Unmap().WithZone("")
}

func (b *bodyReader) setDeadline(w http.ResponseWriter, t time.Time) {
	_ = http.NewResponseController(w).SetReadDeadline(t)
}

// stopReading ends a pending read, and keeps net/http from reading the rest of the body after the answer.
func (b *bodyReader) stopReading(w http.ResponseWriter) { b.setDeadline(w, time.Unix(1, 0)) }

// startDeadline sets the deadline for reading the body. The deadline also bounds net/http, which reads the rest of the
// body after a failure. ResponseWriters without deadlines, as in tests, have none.
func (b *bodyReader) startDeadline(w http.ResponseWriter) {
	b.setDeadline(w, time.Now().Add(b.timeout))
}

func (b *bodyReader) readFailure(err error, limit int64) error {
	var exceeded *http.MaxBytesError
	var network net.Error
	switch {
	case errors.Is(err, errMemory):
		return err
	case errors.As(err, &exceeded):
		return tooLarge(limit)
	case errors.As(err, &network) && network.Timeout():
		return &failure{code: http.StatusRequestTimeout, message: "the body did not arrive in time"}
	}
	return &failure{code: http.StatusBadRequest, message: "reading the body failed before its end"}
}

func tooLarge(limit int64) error {
	return &failure{code: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the body has more than %d bytes", limit)}
}
