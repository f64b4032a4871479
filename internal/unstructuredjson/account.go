package unstructuredjson

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

const (
	// MaxAccount is what the trees of one request may hold. The largest objects that an API server sends take less in
	// every shape that objects have: 3 MiB of small members take a third of it, two objects of 3 and 1.5 MiB that
	// consist of escaped characters another third.
	MaxAccount = 96 << 20

	// freeBytes of each request are not counted together: the limit on requests bounds them. Nearly all reviews need
	// less, so that few large ones cannot keep them out.
	freeBytes = 256 << 10

	// chunk is how much is taken at a time: nodes are counted without touching what all requests share.
	chunk = 256 << 10
)

// ErrTooLarge is that the trees of one request would hold more than it may.
var ErrTooLarge = errors.New("it takes more memory than one request may have")

// BusyError is that the trees of all requests together would hold too much. Another try may succeed.
type BusyError struct{}

// Error implements error.
func (*BusyError) Error() string { return "too many large objects at a time" }

// RetryAfter says when to try again.
func (*BusyError) RetryAfter() time.Duration { return time.Second }

// Memory bounds what the trees of all requests hold together. It is safe for concurrent use and has no lock.
type Memory struct {
	limit int64
	held  atomic.Int64
}

// NewMemory returns a Memory of so many bytes.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

// Held is how many bytes are taken.
func (m *Memory) Held() int64 { return m.held.Load() }

// Open returns the account of one request, which the caller closes when the request is answered.
func (m *Memory) Open() *Account { return &Account{memory: m, covered: freeBytes} }

// Account counts what the trees of one request hold: an estimate, at least of what they really hold. A nil Account
// counts nothing. It is for one goroutine.
type Account struct {
	memory  *Memory
	covered int64 // may be spent: what memory has been told of, and freeBytes
	spent   int64
	objects int64 // that were decoded
}

// Take takes bytes, or fails with ErrTooLarge or a *BusyError.
func (a *Account) Take(bytes int64) error {
	if a == nil {
		return nil
	}
	if a.spent += bytes; a.spent <= a.covered {
		return nil
	}
	return a.cover()
}

func (a *Account) cover() error {
	if a.spent > MaxAccount {
		return ErrTooLarge
	}
	more := (a.spent - a.covered + chunk - 1) / chunk * chunk
	if a.memory.held.Add(more) > a.memory.limit {
		a.memory.held.Add(-more)
		return &BusyError{}
	}
	a.covered += more
	return nil
}

// Close gives everything back.
func (a *Account) Close() {
	a.memory.held.Add(freeBytes - a.covered)
	a.covered, a.spent, a.objects = freeBytes, 0, 0
}

// Spent is how many bytes have been taken.
func (a *Account) Spent() int64 {
	if a == nil {
		return 0
	}
	return a.spent
}

// Objects is how many JSON objects have been decoded.
func (a *Account) Objects() int64 {
	if a == nil {
		return 0
	}
	return a.objects
}

type accountKey struct{}

// WithAccount returns a context that carries the account of its request.
func WithAccount(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// AccountOf returns the account that ctx carries, or nil.
func AccountOf(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	return a
}
