package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

const (
	inStandardLibrary = `{"osv":{"id":"GO-1","summary":"one"}}{"finding":{"osv":"GO-1","fixed_version":"v1.26.9","trace":[{"module":"stdlib","version":"v1.26.8","package":"net/http","function":"Get"}]}}` +
		`{"finding":{"osv":"GO-1","fixed_version":"v1.26.9","trace":[{"module":"stdlib","version":"v1.26.8","package":"net/http","function":"Do"}]}}`
	inModule   = `{"osv":{"id":"GO-2","summary":"two"}}{"finding":{"osv":"GO-2","trace":[{"module":"example.com/m","version":"v1.0.0","package":"m","function":"F"}]}}`
	notInUse   = `{"finding":{"osv":"GO-3","fixed_version":"v2.0.0","trace":[{"module":"example.com/n","version":"v1.0.0"}]}}`
	irrelevant = `{"config":{"db":"x"}}{"progress":{"message":"y"}}`
)

func TestReport(t *testing.T) {
	tests := map[string]struct {
		give     string
		goWarns  bool
		want     []string
		wantFail bool
	}{
		"nothing":            {give: irrelevant, want: []string{"No function in it is listed"}},
		"not in the program": {give: notInUse, want: []string{"No function in it is listed"}},
		"a module": {
			give: irrelevant + inModule, goWarns: true, wantFail: true,
			want: []string{"VULNERABLE: GO-2 in example.com/m v1.0.0, fixed in no version yet, 1 functions: two (https://pkg.go.dev/vuln/GO-2)"},
		},
		"the standard library": {
			give: inStandardLibrary, wantFail: true,
			want: []string{"VULNERABLE: GO-1 in stdlib v1.26.8, fixed in v1.26.9, 2 functions: one"},
		},
		"the standard library, as a warning": {
			give: inStandardLibrary + notInUse, goWarns: true,
			want: []string{"WARNING: GO-1 in stdlib v1.26.8, fixed in v1.26.9, 2 functions: one"},
		},
		"both": {
			give: inStandardLibrary + inModule, goWarns: true, wantFail: true,
			want: []string{"VULNERABLE: GO-2", "WARNING: GO-1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			found, err := read(strings.NewReader(tt.give))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := report(&out, found, tt.goWarns); errors.Is(err, errVulnerable) != tt.wantFail {
				t.Errorf("error %v, want one: %t", err, tt.wantFail)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("printed %q, want %d lines", lines, len(tt.want))
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("line %q, want %q", lines[i], want)
				}
			}
		})
	}
	if _, err := read(strings.NewReader(inModule + "{")); err == nil {
		t.Error("output that ends early is no error")
	}
}

func TestAgeOfDatabase(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for days, wantWarning := range map[int]bool{0: false, 90: false, 91: true, 400: true} {
		var out strings.Builder
		database{Time: now.AddDate(0, 0, -days)}.describe(&out, now)
		if got := strings.Contains(out.String(), "WARNING"); got != wantWarning {
			t.Errorf("a database of %d days ago: %q, want a warning: %t", days, out.String(), wantWarning)
		}
	}
}
