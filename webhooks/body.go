package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// smallBody is the size up to which bodies are not counted: the limit on connections bounds them. Nearly all reviews
// are smaller.
const smallBody = 32 << 10

// bodyReader reads bodies into memory, bounded one by one and together, and in time.
//
// A body gets memory of its own rather than of a pool: the request's objects are parts of it, evaluators may hold on
// to them, and its cost is small beside that of decoding it.
type bodyReader struct {
	limit   int64
	large   *semaphore.Weighted
	held    atomic.Int64 // bytes of large
	timeout time.Duration
}

func newBodyReader(limit, total int64) *bodyReader {
	return &bodyReader{limit: limit, large: semaphore.NewWeighted(total), timeout: 5 * time.Second}
}

// read returns the whole body. The caller calls done when it has no more use for it.
//
// A large body waits for its memory before any of it is read: until then it stays with the client.
func (b *bodyReader) read(ctx context.Context, w http.ResponseWriter, r *http.Request, phase Phase) (body []byte, done func(), err error) {
	limit := b.limit
	if phase == canaryPhase {
		limit = min(limit, smallBody) // so that nothing can keep it from being read
	}
	size := r.ContentLength
	if size > limit {
		return nil, nil, tooLarge(limit)
	}
	if size < 0 { // not announced: it may become as large as allowed
		size = limit
	}
	done = func() {}
	if size > smallBody {
		if err := b.reserve(ctx, size); err != nil {
			return nil, nil, err
		}
		b.hurry(w) // the time until now was not the client's
		done = func() { b.held.Add(-size); b.large.Release(size) }
	}
	body, err = b.readInTime(w, r, limit)
	if err != nil {
		done()
		return nil, nil, b.explain(err, limit)
	}
	return body, done, nil
}

// errMemory is that a large body would have had to wait too long.
var errMemory = errors.New("too many large bodies")

func (b *bodyReader) reserve(ctx context.Context, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait(ctx))
	defer cancel()
	if err := b.large.Acquire(ctx, size); err != nil {
		return errMemory
	}
	b.held.Add(size)
	return nil
}

// readInTime reads with a deadline, which net/http cannot give to the body without giving it to the evaluation too.
func (b *bodyReader) readInTime(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, err error) {
	if r.ContentLength < 0 {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	} else {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	}
	if err == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	return body, err
}

// hurry sets the deadline of the body. It holds until the body has been read: after a failure net/http looks for the
// rest of the body, and must not wait for it either. Writers that know no deadlines, as in tests, go without.
func (b *bodyReader) hurry(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(b.timeout))
}

func (b *bodyReader) explain(err error, limit int64) error {
	var exceeded *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &exceeded):
		return tooLarge(limit)
	case errors.As(err, &network) && network.Timeout():
		return &failure{code: http.StatusRequestTimeout, message: fmt.Sprintf("the body did not arrive within %s", b.timeout)}
	}
	return &failure{code: http.StatusBadRequest, message: "the body could not be read to its end"}
}

func tooLarge(limit int64) error {
	return &failure{code: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the body has more than %d bytes", limit)}
}
