package panics

import (
	"strings"
	"testing"
)

func TestError(t *testing.T) {
	tests := map[string]struct {
		value any
		want  string
	}{
		"an error of the runtime": {value: runtimeError(), want: "nil map"},
		"a text":                  {value: "password", want: "panic with a value of type string"},
		"no value":                {want: "panic with a value of type <nil>"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Error(tc.value).Error(); !strings.Contains(got, tc.want) || strings.Contains(got, "password") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// runtimeError returns the value of a panic of the Go runtime.
func runtimeError() (value any) {
	defer func() { value = recover() }()
	var none map[string]int
	none["a"] = 1 //nolint:govet,staticcheck // the panic is what is wanted
	return nil
}
