package main

import (
	"fmt"
	"strings"
	"testing"
)

// measurements are lines as hack/bench prints them, of a base of 100 µs and these factors.
func measurements(factors ...float64) string {
	var b strings.Builder
	for i, factor := range factors {
		base := 100_000 + 1_000*float64(i) // the machine gets slower, for both
		fmt.Fprintf(&b, "revision: base\nBenchmarkRequest/set=A 1000 %.0f ns/op\n", base)
		fmt.Fprintf(&b, "revision: head\nBenchmarkRequest/set=A 1000 %.0f ns/op\n", base*factor)
	}
	return b.String()
}

func TestCompare(t *testing.T) {
	tests := map[string]struct {
		give    string
		want    string
		wantErr string
	}{
		"equal": {
			give: measurements(1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
			want: "head/base 1.000, 97.9 % confidence interval 1.000 to 1.000, at most 1.05: held",
		},
		"one outlier in each direction": {
			give: measurements(3, 1.01, 0.99, 1.02, 0.98, 1, 1, 0.2, 1.03, 1.01),
			want: "head/base 1.005, 97.9 % confidence interval 0.980 to 1.030, at most 1.05: held",
		},
		"the median is good, the interval is not": {
			give:    measurements(1, 1, 1, 1, 1, 1, 1, 1, 1.06, 1.06),
			want:    "head/base 1.000, 97.9 % confidence interval 1.000 to 1.060, at most 1.05: NOT HELD",
			wantErr: "more than 5 % higher",
		},
		"slower": {
			give:    measurements(1.1, 1.11, 1.1, 1.09, 1.1, 1.1, 1.1, 1.12, 1.1, 1.1),
			want:    "head/base 1.100, 97.9 % confidence interval 1.100 to 1.110",
			wantErr: "more than 5 % higher",
		},
		"a limit": {
			give: "limit: 1.1\n" + measurements(1.09, 1.09, 1.1, 1.09, 1.1, 1.08),
			want: "head/base 1.090, 96.9 % confidence interval 1.080 to 1.100, at most 1.10: held",
		},
		"a limit that is exceeded": {
			give:    "limit: 1.1\n" + measurements(1.09, 1.09, 1.1, 1.09, 1.1, 1.11),
			want:    "at most 1.10: NOT HELD",
			wantErr: "more than the limit",
		},
		"a limit for what follows": {
			give: measurements(1, 1, 1, 1, 1, 1) + "limit: 1.1\n" + strings.ReplaceAll(measurements(1.08, 1.08, 1.08, 1.08, 1.08, 1.08), "set=A", "set=B"),
			want: "Request/set=A: head/base 1.000, 96.9 % confidence interval 1.000 to 1.000, at most 1.05: held",
		},
		"no limit":            {give: "limit: most\n" + measurements(1), wantErr: "want a factor"},
		"faster":              {give: measurements(0.8, 0.8, 0.81, 0.8, 0.8, 0.79), want: "head/base 0.800, 96.9 % confidence interval 0.790 to 0.810"},
		"too few rounds":      {give: measurements(1, 1, 1), wantErr: "need >= 6 samples"},
		"a round without end": {give: measurements(1, 1, 1, 1, 1, 1) + "revision: base\nBenchmarkRequest/set=A 1 1 ns/op\n", wantErr: "7 rounds of base and 6 of head"},
		"nothing":             {wantErr: "no measurements"},
		"no revision":         {give: "BenchmarkRequest/set=A 1000 100 ns/op\n", wantErr: `revision ""`},
		"no time":             {give: "revision: base\nBenchmarkRequest/set=A 1000 100 B/op\n", wantErr: "no ns/op"},
		"no benchmark":        {give: "revision: base\nBenchmarkRequest/set=A many\n", wantErr: "measurements:2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			all, err := read(strings.NewReader(tt.give))
			if err == nil {
				err = compare(all, &out)
			}
			if !strings.Contains(out.String(), tt.want) {
				t.Errorf("printed %q, want %q", out.String(), tt.want)
			}
			if tt.wantErr == "" && err != nil || tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("error %v, want one with %q", err, tt.wantErr)
			}
		})
	}
}
