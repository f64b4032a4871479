package main

import "testing"

func TestGrowth(t *testing.T) {
	tests := map[string]struct {
		live uint64
		want int
	}{
		"not known yet":   {live: 0, want: 100},
		"almost nothing":  {live: 1 << 20, want: 800},
		"a few policies":  {live: 10 << 20, want: 200},
		"as the headroom": {live: 20 << 20, want: 100},
		"more than that":  {live: 25 << 20, want: 80},
		"a thousand":      {live: 50 << 20, want: 40},
		"many policies":   {live: 1 << 30, want: 20},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := growth(tc.live); got != tc.want {
				t.Errorf("growth(%d) = %d, want %d", tc.live, got, tc.want)
			}
		})
	}
}
