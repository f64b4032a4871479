package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/test/bench"
)

// webhook answers reviews with what a function says of each, over TLS.
func webhook(t *testing.T, answer func(number int64) (code int, uid string, v verdict)) target {
	t.Helper()
	var number atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			if r.Context().Err() == nil && !errors.Is(err, io.ErrUnexpectedEOF) { // a caller that was stopped
				t.Error(err)
			}
			return
		}
		code, uid, v := answer(number.Add(1))
		if uid == "" {
			uid = review.Request.UID
		}
		w.WriteHeader(code)
		response := map[string]any{"uid": uid, "allowed": v.allowed, "status": map[string]string{"message": v.message}}
		_ = json.NewEncoder(w).Encode(map[string]any{"response": response})
	}))
	t.Cleanup(s.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	target, err := newTarget(bundle, s.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.client.CloseIdleConnections)
	return target
}

func TestLoad(t *testing.T) {
	good, refused := verdict{allowed: true}, verdict{message: "no"}
	tests := map[string]struct {
		give    verdict
		twenty  func(code *int, uid *string, v *verdict) // changes the twentieth answer
		wantErr string
	}{
		"allowed": {give: good},
		"refused": {give: refused},
		"one is refused": {
			give:    good,
			twenty:  func(_ *int, _ *string, v *verdict) { *v = refused },
			wantErr: "wrong answer: got {allowed:false",
		},
		"one says less":     {give: refused, twenty: func(_ *int, _ *string, v *verdict) { v.message = "n" }, wantErr: "wrong answer"},
		"one is to another": {give: good, twenty: func(_ *int, uid *string, _ *verdict) { *uid = "x" }, wantErr: "it is not to our request"},
		"one fails":         {give: good, twenty: func(code *int, _ *string, _ *verdict) { *code = 500 }, wantErr: "answered 500"},
	}
	body, err := bench.Review(bench.Good)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			answer := func(n int64) (int, string, verdict) {
				code, uid, v := 200, "", tt.give
				if n == 20 && tt.twenty != nil {
					tt.twenty(&code, &uid, &v)
				}
				return code, uid, v
			}
			duration := 200 * time.Millisecond
			if tt.wantErr != "" {
				duration = time.Minute // it ends at the first wrong answer, which a loaded machine gives late
			}
			l := load{target: webhook(t, answer), body: body, want: tt.give, callers: 4, duration: duration}
			f, err := l.measure(t.Context(), os.Getpid())
			switch {
			case tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)):
				t.Errorf("error %v, want one with %q", err, tt.wantErr)
			case tt.wantErr != "":
			case err != nil:
				t.Error(err)
			case f.requests < 4 || f.p50 <= 0 || f.p99 < f.p50 || f.rate <= 0:
				t.Errorf("figures %+v make no sense", f)
			}
		})
	}
}

func TestLoadEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	errEnd := errors.New("the end")
	l := load{callers: 2, duration: time.Hour, want: verdict{allowed: true}, target: webhook(t, func(n int64) (int, string, verdict) {
		if n == 50 {
			cancel(errEnd)
		}
		return 200, "", verdict{allowed: true}
	})}
	l.body = []byte(`{"request":{"uid":"__UID__"}}`)
	if f := l.run(ctx); f.firstFailed != nil {
		t.Errorf("error %v, want none: it was stopped", f.firstFailed)
	}
}

func TestHammerCounts(t *testing.T) {
	complete := verdict{message: "a; b"}
	h := &hammer{want: complete, start: time.Now()}
	for _, seen := range []struct {
		v   verdict
		err error
	}{
		{err: io.ErrUnexpectedEOF},
		{err: &statusError{code: 503}},
		{v: verdict{allowed: true}},
		{v: verdict{message: "a"}},
		{v: complete},
		{err: &statusError{code: 500}},
	} {
		h.count(seen.v, seen.err)
	}
	h.setReady()
	h.count(verdict{allowed: true}, nil)
	h.count(verdict{allowed: true}, nil)
	got := h.seen
	got.ready, got.enforced = 0, 0
	if want := (coldStart{wrongBefore: 1, wrongAfter: 2, partial: 1, complete: 1, unavailable: 1, failed: 1, noConnection: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if h.seen.enforced == 0 || h.seen.ready < h.seen.enforced || got.wrong() != 3 {
		t.Errorf("ready at %s, enforced at %s, %d wrong", h.seen.ready, h.seen.enforced, got.wrong())
	}
}

func TestProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells of processes in /proc")
	}
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); time.Since(start) < 50*time.Millisecond; {
	}
	after, err := cpuTime(os.Getpid())
	if err != nil || after <= before && after == 0 {
		t.Errorf("times %s, then %s, %v", before, after, err)
	}
	m, err := memoryOf(os.Getpid())
	if err != nil || m.now < 1 || m.peak < m.now {
		t.Errorf("memory %+v, %v", m, err)
	}
	if _, err := cpuTime(-1); err == nil {
		t.Error("no error for the times of no process")
	}
	if _, err := memoryOf(-1); err == nil {
		t.Error("no error for the memory of no process")
	}
}

// compared is a pair whose sides add so many milliseconds, in each of three rounds
// that are slower each time.
func compared(name string, native, ours time.Duration) *comparison {
	c := &comparison{pair: &bench.Pair{Name: name}, callers: []int{manyCallers}, versions: []string{"1.37.2"}, rounds: map[seat][]figures{}}
	for side, added := range map[bench.Side]time.Duration{bench.None: 0, bench.Native: native, bench.Ostiary: ours} {
		for round := range time.Duration(3) {
			spent := (2 + 5*round + added) * time.Millisecond
			c.rounds[seat{side, manyCallers, 0}] = append(c.rounds[seat{side, manyCallers, 0}], figures{p50: spent, cpu: spent})
		}
	}
	return c
}

func manyParamsCompared(native, ours time.Duration) *comparison {
	c := compared("", native, ours)
	c.pair.Params = make([]*corev1.ConfigMap, manyParams)
	c.callers = []int{fewCallers}
	for s, all := range maps.Clone(c.rounds) {
		c.rounds[seat{s.side, fewCallers, 0}] = all
	}
	return c
}

func TestAPITarget(t *testing.T) {
	tests := map[string]struct {
		code    int
		body    string
		want    verdict
		wantErr string
	}{
		"created":         {201, `{"labels":{"added-0":"yes"}}`, verdict{allowed: true}, ""},
		"not mutated":     {201, `{"labels":{}}`, verdict{}, `the created pod has no "added-0":"yes"`},
		"refused":         {403, `{}`, verdict{}, ""},
		"refused, in CEL": {422, `{}`, verdict{}, ""},
		"it fails":        {500, `no`, verdict{}, "answered 500: no"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				sent, err := io.ReadAll(r.Body)
				if err != nil || string(sent) != `{"name":"load-z"}` || r.URL.String() != "/api/v1/namespaces/bench-native/pods?dryRun=All" {
					t.Errorf("asked %s for %s, %v", r.URL, sent, err)
				}
				w.WriteHeader(tt.code)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer s.Close()
			target, err := newAPITarget(&rest.Config{Host: s.URL}, bench.Native, []string{`"added-0":"yes"`})
			if err != nil {
				t.Fatal(err)
			}
			got, err := target.ask(t.Context(), []byte(`{"name":"`+bench.NamePlaceholder+`"}`), 35)
			if got != tt.want || (err == nil) != (tt.wantErr == "") || err != nil && err.Error() != tt.wantErr {
				t.Errorf("got %+v, error %v, want %+v, %q", got, err, tt.want, tt.wantErr)
			}
		})
	}
}

func TestReport(t *testing.T) {
	figuresOf := func(cpu ...time.Duration) (all []figures) {
		for _, c := range cpu {
			all = append(all, figures{requests: 1, p50: c, p99: c, rate: 1, cpu: c})
		}
		return all
	}
	rounds := map[kind][]figures{}
	for _, k := range kinds() {
		rounds[k] = figuresOf(100, 200, 100)
	}
	rounds[kind{ostiary, bench.Good, maxCallers}] = figuresOf(300, 100, 70) // 3, 0.5 and 0.7 times
	d := &loadResult{set: bench.D, rounds: rounds, after: memory{90, 100}}
	tests := map[string]struct {
		report report
		want   bool
		text   string
	}{
		"the median is met": {
			report: report{loads: []*loadResult{d}},
			want:   true,
			text:   "| CPU per request, set D | 0.8 × no-op | 0.70 | met |",
		},
		"a ratio is not": {
			report: report{loads: []*loadResult{{set: bench.A, rounds: rounds}}},
			text:   "| CPU per request, set A | 0.6 × no-op | 0.70 | **NOT met** |",
		},
		"memory is not": {
			report: report{loads: []*loadResult{{set: bench.D, rounds: rounds, after: memory{90, 101}}}},
			text:   "| peak memory, set D | 100 MiB | 101.00 | **NOT met** |",
		},
		"one wrong answer": {report: report{cold: []coldStart{{}, {wrongAfter: 1}}}, text: "| 1.00 | **NOT met** |"},
		"no wrong answer":  {report: report{cold: []coldStart{{}, {}}}, want: true, text: "| 0.00 | met |"},
		"a share is too large": {
			report: report{comparisons: []*comparison{compared(bench.R, 10, 4)}},
			text:   "| added CPU, set R, 8 callers | 0.33 × native 1.37.2 | 0.40 | **NOT met** |",
		},
		"a latency is, too": {
			report: report{comparisons: []*comparison{compared(bench.R, 10, 4)}},
			text:   "| added p50, set R, 8 callers | 0.33 × native 1.37.2 | 0.40 | **NOT met** |",
		},
		"a share of set R2 is too large": {
			report: report{comparisons: []*comparison{compared(bench.R2+", Audit", 100, 26)}},
			text:   "| added CPU, set R2, Audit, 8 callers | 0.25 × native 1.37.2 | 0.26 | **NOT met** |",
		},
		"a share is not": {
			report: report{comparisons: []*comparison{compared(bench.C, 100, 9)}},
			want:   true,
			text:   "| added CPU, set C, 8 callers | 0.25 × native 1.37.2 | 0.09 | met |",
		},
		"within the slack": {
			report: report{slack: 2, comparisons: []*comparison{compared(bench.B, 10, 15)}},
			want:   true,
			text:   "| added CPU, set B, 8 callers | 1 × native 1.37.2 | 1.50 | **NOT met** |",
		},
		"beyond the slack": {
			report: report{slack: 2, comparisons: []*comparison{compared(bench.B, 10, 21)}},
			text:   "| added CPU, set B, 8 callers | 1 × native 1.37.2 | 2.10 | **NOT met** |",
		},
		"native adds nothing": {
			report: report{comparisons: []*comparison{compared(bench.B, 0, 1)}},
			text:   "**NOT met**",
		},
		"no result": {
			report: report{comparisons: []*comparison{compared(bench.B, -1, -2)}},
			text:   "**NOT met**",
		},
		"compiled is small": {
			report: report{compiled: &compiledSize{30, 60}},
			want:   true,
			text:   "| memory of a compiled policy | 30 KiB | 30.00 | met |",
		},
		"compiled is not": {
			report: report{compiled: &compiledSize{30, 61}},
			text:   "| memory of a compiled policy with three variables | 60 KiB | 61.00 | **NOT met** |",
		},
		"many params take too long": {
			report: report{comparisons: []*comparison{manyParamsCompared(4000, 51)}},
			text:   "| added latency,  | 50 ms | 51.00 | **NOT met** |",
		},
		"enforced in time": {report: report{enforced: []enforcement{
			{applied: time.Second, enforced: []time.Duration{2 * time.Second, 6 * time.Second}},
		}}, want: true, text: "| 1,000 policies enforced after the last was applied | 6 s | 5.00 | met |"},
		"enforced too late": {
			report: report{enforced: []enforcement{{enforced: []time.Duration{7 * time.Second}}}},
			text:   "| 7.00 | **NOT met** |",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.report.slack = max(1, tt.report.slack)
			var out bytes.Buffer
			tt.report.print(&out)
			if got := tt.report.met(); got != tt.want || !strings.Contains(out.String(), tt.text) {
				t.Errorf("met: %t, want %t, with %q:\n%s", got, tt.want, tt.text, out.String())
			}
		})
	}
}

func TestParse(t *testing.T) {
	tests := map[string]struct {
		args    []string
		wantErr string
	}{
		"none":           {},
		"some sets":      {args: []string{"-sets=A,P1000"}},
		"unknown set":    {args: []string{"-sets=A,X"}, wantErr: `-sets: unknown name "X": choose from A, B, C, D, R, R2, V, P1000`},
		"no comparison":  {args: []string{"-compare="}},
		"unknown one":    {args: []string{"-compare=params,X"}, wantErr: `-compare: unknown name "X": choose from sets, params, mutations`},
		"no rounds":      {args: []string{"-rounds=0"}, wantErr: "-rounds: 0: give 1 to 100"},
		"too long":       {args: []string{"-duration=1h"}, wantErr: "-duration: 1h0m0s: give 100ms to 1m"},
		"idle too long":  {args: []string{"-idle=2h"}, wantErr: "-idle: 2h0m0s: give 0 to 1h"},
		"a bare word":    {args: []string{"all"}, wantErr: `unexpected argument "all"`},
		"quick, checked": {args: []string{"-short", "-check"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tt.args)
			if tt.wantErr == "" && err != nil || tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}

func TestRevisionsTakeTurns(t *testing.T) {
	base, head := revision{"base", "a"}, revision{"head", "b"}
	var got []string
	for round := range 4 {
		for _, r := range inTurn(round, base, head) {
			got = append(got, r.name)
		}
	}
	want := []string{"base", "head", "head", "base", "base", "head", "head", "base"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// The format is that of golang.org/design/14313-benchmark-format.
func TestBenchmarkLine(t *testing.T) {
	got := benchmarkLine("base", "A", figures{requests: 12_345, cpu: 76_543*time.Nanosecond + 21*time.Microsecond})
	if want := "revision: base\nBenchmarkRequest/set=A 12345 97543 ns/op\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
