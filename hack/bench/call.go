package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ostiary/ostiary/test/bench"
)

// maxCallers bounds the connections that are kept.
const maxCallers = 16

// target is a webhook server, and what of it an API server calls for a pod.
type target struct {
	client *http.Client
	urls   []string
}

// newTarget talks as an API server does to a webhook: HTTP/1.1 over TLS, on
// connections that are kept.
func newTarget(bundle []byte, urls ...string) (target, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return target{}, errors.New("no certificate in the webhook's bundle")
	}
	if len(urls) == 0 {
		return target{}, errors.New("no webhook is called for pods")
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return target{urls: urls, client: &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			Protocols:       protocols, MaxIdleConnsPerHost: maxCallers, DisableCompression: true,
		},
	}}, nil
}

// verdict is what the webhooks say of one pod.
type verdict struct {
	allowed bool
	message string
}

// statusError is an answer that is no review.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("answered %d: %s", e.code, e.text) }

// ask sends a review to every webhook that an API server calls, one after the
// other. One that refuses is enough.
func (t target) ask(ctx context.Context, template []byte, number int64) (verdict, error) {
	uid := fmt.Sprintf("7a3c1f00-0000-4000-8000-%012x", number)
	body := bytes.ReplaceAll(template, []byte(bench.UIDPlaceholder), []byte(uid))
	name := "load-" + strconv.FormatInt(number, 36)
	body = bytes.ReplaceAll(body, []byte(bench.NamePlaceholder), []byte(name))
	all := verdict{allowed: true}
	for _, url := range t.urls {
		v, err := t.askOne(ctx, url, body, uid)
		if err != nil {
			return v, err
		}
		if !v.allowed {
			all.allowed = false
			all.message += strings.ReplaceAll(v.message, name, bench.NamePlaceholder) // equal for all pods
		}
	}
	return all, nil
}

func (t target) askOne(ctx context.Context, url string, body []byte, uid string) (verdict, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return verdict{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, */*")
	code, content, err := send(t.client, request)
	switch {
	case err != nil:
		return verdict{}, err
	case code != http.StatusOK:
		return verdict{}, &statusError{code, fmt.Sprintf("%.200s", content)}
	}
	return readVerdict(content, uid)
}

// send sends a request and reads its answer, of which 1 MiB is enough.
func send(client *http.Client, request *http.Request) (code int, content []byte, err error) {
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	content, err = io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, content, err
}

func readVerdict(content []byte, uid string) (verdict, error) {
	var review struct {
		Response *struct {
			UID     string
			Allowed bool
			Status  struct{ Message string }
		}
	}
	if err := json.Unmarshal(content, &review); err != nil {
		return verdict{}, fmt.Errorf("reading the answer: %w", err)
	}
	if review.Response == nil || review.Response.UID != uid {
		return verdict{}, fmt.Errorf("reading the answer: it is not to our request: %.200s", content)
	}
	return verdict{review.Response.Allowed, review.Response.Status.Message}, nil
}
