package webhooks

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// smallBody is the size up to which bodies are not counted: the limit on connections bounds them.
const smallBody = 64 << 10

// budget bounds what is in use at a time, without a lock.
type budget struct {
	limit int64
	used  atomic.Int64
}

func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// bodyReader reads bodies into memory, bounded one by one and together, and in time.
//
// A body gets memory of its own rather than of a pool: the request's objects are parts of it, evaluators may hold on
// to them, and its cost is small beside that of decoding it.
type bodyReader struct {
	limit   int64
	large   budget
	timeout time.Duration
}

func newBodyReader(limit, total int64) *bodyReader {
	return &bodyReader{limit: limit, large: budget{limit: total}, timeout: 5 * time.Second}
}

// read returns the whole body. The caller calls done when it has no more use for it.
func (b *bodyReader) read(w http.ResponseWriter, r *http.Request) (body []byte, done func(), err error) {
	size := r.ContentLength
	if size > b.limit {
		return nil, nil, b.tooLarge()
	}
	if size < 0 { // not announced: it may become as large as allowed
		size = b.limit
	}
	done = func() {}
	if size > smallBody {
		if !b.large.take(size) {
			return nil, nil, overloaded("too many large bodies")
		}
		done = func() { b.large.give(size) }
	}
	body, err = b.readInTime(w, r)
	if err != nil {
		done()
		return nil, nil, b.explain(err)
	}
	return body, done, nil
}

// readInTime reads with a deadline, which net/http cannot give to the body without giving it to the evaluation too.
func (b *bodyReader) readInTime(w http.ResponseWriter, r *http.Request) (body []byte, err error) {
	if r.ContentLength < 0 {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, b.limit))
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

func (b *bodyReader) explain(err error) error {
	var tooLarge *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &tooLarge):
		return b.tooLarge()
	case errors.As(err, &network) && network.Timeout():
		return &failure{code: http.StatusRequestTimeout, message: fmt.Sprintf("the body did not arrive within %s", b.timeout)}
	}
	return &failure{code: http.StatusBadRequest, message: "the body could not be read to its end"}
}

func (b *bodyReader) tooLarge() error {
	return &failure{code: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the body has more than %d bytes", b.limit)}
}
