package unstructuredjson

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

const (
	// MaxAccount bounds the trees of one request in bytes. The largest objects that an API server sends need less in every
	// realistic shape: 3 MiB of small members need a third, and two objects of 3 and 1.5 MiB of escaped characters another
	// third.
	MaxAccount = 96 << 20

	// freeBytes of each request are not counted in Memory: the limit on requests bounds them. Nearly all reviews need
	// less, so a few large ones do not block them.
	freeBytes = 256 << 10

	// chunk is how much is taken at a time, so that counting nodes rarely changes the shared Memory.
	chunk = 256 << 10
)

// ErrTooLarge means that the trees of one request exceed MaxAccount.
var ErrTooLarge = errors.New("it needs more memory than one request may use")

// BusyError means that the trees of all requests exceed the Memory. A retry may succeed.
type BusyError struct{}

// Error implements error.
func (*BusyError) Error() string { return "too many concurrent large objects" }

// RetryAfter returns when to retry.
func (*BusyError) RetryAfter() time.Duration { return time.Second }

// Memory bounds the trees of all requests. It is safe for concurrent use and has no lock.
type Memory struct {
	limit int64
	held  atomic.Int64
}

// NewMemory returns a Memory with a limit in bytes.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

// Held returns the bytes in use.
func (m *Memory) Held() int64 { return m.held.Load() }

// Open returns the account of one request. The caller closes it after the response.
func (m *Memory) Open() *Account { return &Account{memory: m, covered: freeBytes} }

// Account counts the size of the trees of one request. It never underestimates. A nil Account counts nothing. It is not
// safe for concurrent use.
type Account struct {
	memory  *Memory
	covered int64 // may be spent: the bytes taken from memory, and freeBytes
	spent   int64
	objects int64 // decoded objects
}

// Take takes bytes. It fails with ErrTooLarge or a *BusyError.
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

// Close returns all bytes.
func (a *Account) Close() {
	a.memory.held.Add(freeBytes - a.covered)
	a.covered, a.spent, a.objects = freeBytes, 0, 0
}

// Spent returns the bytes taken.
func (a *Account) Spent() int64 {
	if a == nil {
		return 0
	}
	return a.spent
}

// Objects returns the number of decoded JSON objects.
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
