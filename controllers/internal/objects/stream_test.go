package objects

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"
)

func eventsOf(text string) *Events { return newEvents(io.NopCloser(strings.NewReader(text))) }

// TestEvents reads events of all sizes, several of which arrive at once.
func TestEvents(t *testing.T) {
	var text strings.Builder
	var want, got []string
	for i, size := range []int{1, 2 * maxKeptBuffer, 10, 20, maxObject - 100, 3 * maxKeptBuffer, 3 * maxKeptBuffer, 5} {
		object := fmt.Sprintf(`{"n":%d,"x":%q}`, i, strings.Repeat("x", size))
		fmt.Fprintf(&text, `{"type":"ADDED","object":%s}`, object)
		if i%2 == 0 {
			text.WriteString("\n")
		}
		want = append(want, object)
	}
	events := eventsOf(text.String())
	for {
		kind, raw, err := events.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || kind != watch.Added {
			t.Fatalf("got %s, %v", kind, err)
		}
		got = append(got, string(raw))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestEventsAreBounded(t *testing.T) {
	tests := map[string]struct {
		text string
		want error
	}{
		"an object of more than 8 MiB": {`{"type":"ADDED","object":{"x":"` + strings.Repeat("x", 2*maxObject), ErrTooLarge},
		"a type of more than 8 MiB":    {`{"type":"` + strings.Repeat("x", 2*maxObject), ErrTooLarge},
		"cut off":                      {`{"type":"ADDED","object":{`, io.ErrUnexpectedEOF},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, _, err := eventsOf(tc.text).Next(); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}
