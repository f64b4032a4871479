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

// smallBody is the size up to which bodies are not counted: the limit on connections bounds them. Nearly all reviews
// are smaller.
const smallBody = 32 << 10

// maxReviewedBody is the largest review of a policy. A stored policy has at most 1.5 MiB: one that is larger is not worth
// reading. An UPDATE carries two. Of what an API server escapes with six bytes, policies hold some (<, >, & of
// expressions), and hardly ever more than half: 2 x 1.5 MiB x 3, with the envelope, is 10 MiB.
const maxReviewedBody = 10 << 20

// bodyReader reads bodies into memory, bounded one by one and together, and in time.
//
// A body gets memory of its own rather than of a pool: the request's objects are parts of it, evaluators may hold on
// to them, and its cost is small beside that of decoding it.
type bodyReader struct {
	limit   int64
	memory  *bodyMemory
	timeout time.Duration // of a small body, and the grace period of a large one
}

func newBodyReader(limit, total int64) *bodyReader {
	return &bodyReader{limit: limit, memory: newBodyMemory(total), timeout: 5 * time.Second}
}

// read returns the whole body. The caller calls done when it has no more use for it.
func (b *bodyReader) read(ctx context.Context, w http.ResponseWriter, r *http.Request, to endpoint) (body []byte, done func(), err error) {
	limit := b.limitOf(to)
	switch size := r.ContentLength; {
	case size > limit:
		b.skip(w)
		return nil, nil, tooLarge(limit)
	case size < 0 || size > smallBody:
		return b.readLarge(ctx, w, r, limit)
	}
	body = make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, nil, b.explain(err, limit)
	}
	b.setDeadline(w, time.Time{})
	return body, func() {}, nil
}

func (b *bodyReader) limitOf(to endpoint) int64 {
	switch to {
	case canaryEndpoint:
		return min(b.limit, smallBody) // so that nothing can keep it from being read
	case reviewEndpoint:
		return min(b.limit, maxReviewedBody)
	default:
		return b.limit
	}
}

// readLarge reads a body that is large, or may become so. A body holds at most twice what has arrived of it: whoever
// only announces one holds nothing. The buffers that it has outgrown are left to the garbage collector.
func (b *bodyReader) readLarge(ctx context.Context, w http.ResponseWriter, r *http.Request, limit int64) ([]byte, func(), error) {
	l := &largeBody{from: sourceOf(r), began: time.Now(), waitLeft: min(maxWait(ctx), maxMemoryWait)}
	l.stop = func() { b.skip(w) }
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
		return nil, nil, b.explain(err, limit)
	}
	b.setDeadline(w, time.Time{})
	return body, func() { b.memory.release(l) }, nil
}

// readGrowing reads until the end, or, if that is exact, as many bytes as the limit says.
func (b *bodyReader) readGrowing(ctx context.Context, w http.ResponseWriter, source io.Reader, l *largeBody, limit int64, exact bool) ([]byte, error) {
	const paceStep = 128 << 10
	body := make([]byte, 0, min(limit, smallBody))
	next := make([]byte, 1)
	for paced := int64(0); !exact || int64(len(body)) < limit; {
		into := body[len(body):cap(body)]
		full := len(into) == 0
		if full { // only a byte that has arrived makes the body grow
			into = next
		}
		n, err := source.Read(into)
		if full && n > 0 {
			size := min(2*int64(cap(body)), limit)
			if err := b.memory.grow(ctx, l, size); err != nil {
				b.skip(w)
				return nil, err
			}
			body = append(append(make([]byte, 0, size), body...), next[0])
			paced = 0
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
		if int64(len(body)) >= paced+paceStep || paced == 0 {
			paced = int64(len(body))
			b.pace(ctx, w, l)
		}
	}
	return body, nil
}

// pace sets the deadline by what has arrived: beyond the grace period a body needs the least rate, and after the
// caller has stopped waiting it is of no use.
func (b *bodyReader) pace(ctx context.Context, w http.ResponseWriter, l *largeBody) {
	deadline := l.began.Add(b.timeout + durationAt(minRate, l.received.Load()))
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	b.setDeadline(w, deadline)
	if l.dropped.Load() { // meanwhile: the deadline above must not undo that of the drop
		b.skip(w)
	}
}

// sourceOf is the address that a request comes from. It is the zero one for what has none.
func sourceOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return from.Addr().Unmap().WithZone("")
}

func (b *bodyReader) setDeadline(w http.ResponseWriter, t time.Time) {
	_ = http.NewResponseController(w).SetReadDeadline(t)
}

// skip has nothing more of the body read, neither by who reads it now nor by net/http after the answer.
func (b *bodyReader) skip(w http.ResponseWriter) { b.setDeadline(w, time.Unix(1, 0)) }

// setGraceDeadline sets the deadline of the body. It holds until the body has been read: after a failure net/http looks for the
// rest of the body, and must not wait for it either. Writers that know no deadlines, as in tests, go without.
func (b *bodyReader) setGraceDeadline(w http.ResponseWriter) {
	b.setDeadline(w, time.Now().Add(b.timeout))
}

func (b *bodyReader) explain(err error, limit int64) error {
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
	return &failure{code: http.StatusBadRequest, message: "the body could not be read to its end"}
}

func tooLarge(limit int64) error {
	return &failure{code: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the body has more than %d bytes", limit)}
}
