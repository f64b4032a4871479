package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/test/bench"
)

// apiTarget is an API server that is asked, by dry run, to create pods.
type apiTarget struct {
	client *http.Client
	url    string
	marks  []string // that stand in the pod of every answer
}

// newAPITarget creates pods in the namespace of a side.
func newAPITarget(config *rest.Config, side bench.Side, marks []string) (apiTarget, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return apiTarget{}, fmt.Errorf("making a client: %w", err)
	}
	client.Timeout = 30 * time.Second
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods?dryRun=All", config.Host, namespaceOf(side))
	return apiTarget{client, url, marks}, nil
}

// ask creates a pod of its own name. What the API server made of it has to have
// the marks.
func (t apiTarget) ask(ctx context.Context, template []byte, number int64) (verdict, error) {
	body := bytes.ReplaceAll(template, []byte(bench.NamePlaceholder), []byte("load-"+strconv.FormatInt(number, 36)))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return verdict{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	code, content, err := send(t.client, request)
	switch {
	case err != nil:
		return verdict{}, err
	case code == http.StatusForbidden || code == http.StatusUnprocessableEntity:
		return verdict{}, nil // the text has the pod's name
	case code != http.StatusCreated:
		return verdict{}, &statusError{code, fmt.Sprintf("%.200s", content)}
	}
	for _, mark := range t.marks {
		if !bytes.Contains(content, []byte(mark)) {
			return verdict{}, &missingError{mark}
		}
	}
	return verdict{allowed: true}, nil
}

// missingError is a pod that was not mutated by every policy.
type missingError struct{ mark string }

func (e *missingError) Error() string { return fmt.Sprintf("the created pod has no %s", e.mark) }

// isEnforced reports whether all policies of a pair decide on the pods of a side, in
// every version: with want false, whether they do in any.
func (w *world) isEnforced(ctx context.Context, p *bench.Pair, side bench.Side, want bool) (bool, error) {
	for version := range w.versions {
		got, err := w.isEnforcedAt(ctx, p, side, version)
		if got != want || err != nil {
			return got, err
		}
	}
	return want, nil
}

func (w *world) isEnforcedAt(ctx context.Context, p *bench.Pair, side bench.Side, version int) (bool, error) {
	t, err := newAPITarget(w.cp.Config(apiServer(version, side)), side, p.Marks)
	if err != nil {
		return false, err
	}
	defer t.client.CloseIdleConnections()
	pod := bench.Good
	if p.Marks == nil && p.Refused == nil {
		pod = bench.Bad
	}
	body, err := bench.PodBody(pod, p.Refused)
	if err != nil {
		return false, err
	}
	v, err := t.ask(ctx, body, 0)
	var missing *missingError
	if errors.As(err, &missing) {
		return false, nil
	}
	return v.allowed == (p.Marks != nil), err
}

// awaitEnforced waits until a pair is, or no longer is, enforced on a side.
func (w *world) awaitEnforced(ctx context.Context, p *bench.Pair, side bench.Side, want bool) error {
	what := fmt.Sprintf("%s is enforced on the side %s: %t", p.Name, side, want)
	return w.await(ctx, 100*time.Millisecond, what, func() (bool, error) {
		got, err := w.isEnforced(ctx, p, side, want)
		return got == want, err
	})
}

// awaitNative waits until the engine in the API server has all that was applied.
func (w *world) awaitNative(ctx context.Context, p *bench.Pair) error {
	if err := w.awaitEnforced(ctx, p, bench.Native, true); err != nil {
		return err
	}
	if p.Marks != nil || p.Policies == 1 {
		return nil // every policy was seen
	}
	last := bench.SentinelPair()
	if err := w.create(ctx, last.Native); err != nil {
		return err
	}
	if err := w.awaitEnforced(ctx, last, bench.Native, true); err != nil {
		return err
	}
	if err := w.remove(ctx, last.Native); err != nil {
		return err
	}
	return w.awaitEnforced(ctx, last, bench.Native, false)
}
