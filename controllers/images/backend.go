package images

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxAnswer bounds the response of a backend, in bytes.
	maxAnswer = 64 << 10
	// maxComplaint bounds the text of a response in an error, in bytes.
	maxComplaint = 512
)

// backend is an image policy webhook.
type backend struct {
	url    string
	client *http.Client
}

// newBackend returns a client for a kubeconfig, which must be self-contained: it
// reads no files and runs no programs. It follows no redirects. Errors contain
// only names of fields.
func newBackend(kubeconfig []byte) (*backend, error) {
	loaded, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errors.New("it is not a kubeconfig") // the error may quote it
	}
	if err := single(loaded); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*loaded, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errors.New("it has no current context with a cluster that has a server")
	}
	address, err := url.Parse(config.Host)
	if err != nil || address.Scheme != "https" || address.Host == "" || address.User != nil {
		return nil, errors.New("server: must be an https URL, for example https://images.example.com/review")
	}
	if config.Insecure {
		return nil, errors.New("insecure-skip-tls-verify: not allowed; use certificate-authority-data")
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, errors.New("its certificates or its key are invalid")
	}
	return &backend{url: address.String(), client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// single returns an error for a kubeconfig that is not self-contained.
func single(c *clientcmdapi.Config) error {
	for _, cluster := range c.Clusters {
		if cluster != nil && cluster.CertificateAuthority != "" {
			return errors.New("certificate-authority: files are not read; use certificate-authority-data")
		}
	}
	for _, user := range c.AuthInfos {
		switch {
		case user == nil:
		case user.ClientCertificate != "" || user.ClientKey != "":
			return errors.New("client-certificate and client-key: files are not read; use client-certificate-data and client-key-data")
		case user.TokenFile != "":
			return errors.New("tokenFile: files are not read; use token")
		case user.Exec != nil || user.AuthProvider != nil:
			return errors.New("exec and auth-provider: programs are not run; use token, or client-certificate-data and client-key-data")
		}
	}
	return nil
}

// Review implements pluginapi.ImageBackend.
func (b *backend) Review(ctx context.Context, review *imagepolicyv1alpha1.ImageReview) (status imagepolicyv1alpha1.ImageReviewStatus, err error) {
	body, err := json.Marshal(review)
	if err != nil {
		return status, fmt.Errorf("encoding an ImageReview: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(body))
	if err != nil {
		return status, fmt.Errorf("calling the image policy backend: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := b.client.Do(request)
	if err != nil {
		return status, &unansweredError{err}
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return status, fmt.Errorf("reading the response of the image policy backend: %w", err)
	case len(answer) > maxAnswer:
		return status, fmt.Errorf("the response of the image policy backend exceeds %d KiB", maxAnswer>>10)
	case response.StatusCode < 200 || response.StatusCode > 299:
		after, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return status, apierrors.NewGenericServerResponse(response.StatusCode, http.MethodPost, schema.GroupResource{}, "", "unexpected response of the image policy backend", max(after, 0), true)
	}
	return statusOf(answer)
}

// unansweredError omits addresses and network errors, because users and authors of
// policies see its message.
type unansweredError struct{ err error }

// Error implements error.
func (e *unansweredError) Error() string {
	var unverified *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case errors.As(e.err, &unverified):
		return "the certificate of the image policy backend is not trusted"
	case errors.As(e.err, &op) && op.Op == "remote error": // a TLS alert
		return "unexpected response of the image policy backend"
	}
	return "the image policy backend is not reachable"
}

// Unwrap returns the cause, for retries.
func (e *unansweredError) Unwrap() error { return e.err }

// statusOf reads a response of kind ImageReview.
func statusOf(answer []byte) (imagepolicyv1alpha1.ImageReviewStatus, error) {
	var review imagepolicyv1alpha1.ImageReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return imagepolicyv1alpha1.ImageReviewStatus{}, fmt.Errorf("the response of the image policy backend is not an ImageReview: %w", err)
	}
	version := imagepolicyv1alpha1.SchemeGroupVersion.String()
	if review.Kind != "" && review.Kind != "ImageReview" || review.APIVersion != "" && review.APIVersion != version {
		return imagepolicyv1alpha1.ImageReviewStatus{}, fmt.Errorf("the response of the image policy backend has kind %q in version %q instead of ImageReview in %s",
			truncate.String(review.Kind, maxComplaint), truncate.String(review.APIVersion, maxComplaint), version)
	}
	return review.Status, nil
}
