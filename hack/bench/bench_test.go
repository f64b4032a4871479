package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ostiary/ostiary/test/bench"
)

// webhook answers reviews with what a function says of each, over TLS.
func webhook(t *testing.T, answer func(number int64) (code int, uid string, v verdict)) target {
	t.Helper()
	var number atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
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
		"allowed":           {give: good},
		"refused":           {give: refused},
		"one is refused":    {give: good, twenty: func(_ *int, _ *string, v *verdict) { *v = refused }, wantErr: "wrong answer: got {allowed:false"},
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
			l := load{target: webhook(t, answer), body: body, want: tt.give, callers: 4, duration: 200 * time.Millisecond}
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
		t.Errorf("error %v, want none: it was told to end", f.firstFailed)
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
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Skip(err)
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
	rounds[kind{ostiary, bench.Good, maxCallers}] = figuresOf(300, 200, 110) // 3, 1 and 1.1 times
	d := &loadResult{set: bench.D, rounds: rounds, after: memory{100, 120}}
	tests := map[string]struct {
		report report
		want   bool
		text   string
	}{
		"the median is met": {report{loads: []*loadResult{d}}, true, "| CPU per request, set D | 1.1 × no-op | 1.10 | met |"},
		"a ratio is not":    {report{loads: []*loadResult{{set: bench.A, rounds: rounds}}}, false, "| CPU per request, set A | 0.9 × no-op | 1.10 | **NOT met** |"},
		"memory is not":     {report{loads: []*loadResult{{set: bench.D, rounds: rounds, after: memory{100, 121}}}}, false, "| most memory ever held, set D | 120 MiB | 121.00 | **NOT met** |"},
		"one wrong answer":  {report{cold: []coldStart{{}, {wrongAfter: 1}}}, false, "| 1.00 | **NOT met** |"},
		"no wrong answer":   {report{cold: []coldStart{{}, {}}}, true, "| 0.00 | met |"},
		"enforced in time": {report{enforced: []enforcement{
			{applied: time.Second, enforced: []time.Duration{2 * time.Second, 6 * time.Second}},
		}}, true, "| 1,000 policies enforced after the last was applied | 6 s | 5.00 | met |"},
		"enforced too late": {report{enforced: []enforcement{{enforced: []time.Duration{7 * time.Second}}}}, false, "| 7.00 | **NOT met** |"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
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
		"unknown set":    {args: []string{"-sets=A,X"}, wantErr: `-sets: unknown name "X": choose from A, B, C, D, P1000`},
		"no comparison":  {args: []string{"-compare="}},
		"unknown one":    {args: []string{"-compare=params,X"}, wantErr: `-compare: unknown name "X": choose from sets, params, mutations`},
		"no rounds":      {args: []string{"-rounds=0"}, wantErr: "-rounds: 0: give 1 to 100"},
		"too long":       {args: []string{"-duration=1h"}, wantErr: "-duration: 1h0m0s: give 100ms to 1m"},
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
