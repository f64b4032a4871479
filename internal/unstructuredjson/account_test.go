package unstructuredjson

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// worst returns bodies of the shapes that need the most memory for their size.
func worst(size int) map[string]string {
	list := func(element string) string {
		return `{"a":[` + strings.TrimSuffix(strings.Repeat(element+",", size/(len(element)+1)), ",") + `]}`
	}
	var members strings.Builder
	for i := 0; members.Len() < size; i++ {
		fmt.Fprintf(&members, `,"%x":0`, i)
	}
	const depth = 90
	return map[string]string{
		"empty objects":    list(`{}`),
		"empty arrays":     list(`[]`),
		"one member":       list(`{"":0}`),
		"nine members":     list(`{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0}`),
		"nested objects":   list(strings.Repeat(`{"":`, depth) + `0` + strings.Repeat(`}`, depth)),
		"nested arrays":    list(strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth)),
		"numbers":          list(`1000`),
		"fractions":        list(`1.5`),
		"literals":         list(`null`),
		"strings":          list(`""`),
		"escaped strings":  list(`"\n"`),
		"members":          `{` + members.String()[1:] + `}`,
		"an escaped text":  `{"a":"` + strings.Repeat(`\u003c`, size/6) + `"}`,
		"text":             `{"a":"` + strings.Repeat(`x`, size) + `"}`,
		"list of env vars": list(`{"name":"VARIABLE","value":"something"}`),
	}
}

// TestEstimate compares what is taken from an account with what a tree adds to the heap.
func TestEstimate(t *testing.T) {
	const (
		size     = 1 << 20
		rounding = 64 << 10 // of allocations, to whole pages
	)
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the second empties pools
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for name, text := range worst(size) {
		t.Run(name, func(t *testing.T) {
			raw := []byte(text)
			account := NewMemory(1 << 30).Open()
			before := live()
			tree, err := account.DecodeParts(raw, Everything())
			if err != nil {
				t.Fatal(err)
			}
			held := live() - before
			t.Logf("%d bytes hold %.1f times as much, and are counted as %.1f times", len(raw),
				float64(held)/float64(len(raw)), float64(account.Spent())/float64(len(raw)))
			if account.Spent()+rounding < held {
				t.Errorf("counted as %d bytes, want at least %d", account.Spent(), held)
			}
			runtime.KeepAlive(tree)
			runtime.KeepAlive(raw)
		})
	}
}

// TestAccountLimits checks that decoding stops at the limits and that Close returns all bytes.
func TestAccountLimits(t *testing.T) {
	raw := []byte(worst(7 << 20)["empty objects"])
	memory := NewMemory(MaxAccount / 2)
	account := memory.Open()
	var busy *BusyError
	if _, err := account.DecodeParts(raw, Everything()); !errors.As(err, &busy) || busy.RetryAfter() <= 0 {
		t.Errorf("beyond the limit of all: got %v, want a *BusyError", err)
	}
	if held := memory.Held(); held < MaxAccount/4 || held > MaxAccount/2 {
		t.Errorf("%d bytes are held, want them near the limit", held)
	}
	other := memory.Open()
	if _, err := other.DecodeParts([]byte(`{"metadata":{"name":"small"}}`), Everything()); err != nil {
		t.Errorf("a small one beside it: %v", err)
	}
	other.Close()
	account.Close()
	if held := memory.Held(); held != 0 {
		t.Errorf("%d bytes are held after all, want none", held)
	}
	account = NewMemory(2 * MaxAccount).Open()
	if _, err := account.DecodeParts(raw, Everything()); !errors.Is(err, ErrTooLarge) {
		t.Errorf("beyond the limit of one: got %v, want ErrTooLarge", err)
	}
}
