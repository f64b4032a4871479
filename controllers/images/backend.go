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
	// maxAnswer bounds, in bytes, what a backend may answer.
	maxAnswer = 64 << 10
	// maxComplaint bounds, in bytes, what of an answer stands in an error.
	maxComplaint = 512
)

// backend is somebody who decides about images.
type backend struct {
	url    string
	client *http.Client
}

// newBackend makes a client of a kubeconfig, in which everything stands that is
// needed: no files are read and no programs run for it. No redirect is followed.
// Errors say nothing of what is in it but names of fields.
func newBackend(kubeconfig []byte) (*backend, error) {
	loaded, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errors.New("it is no kubeconfig") // the error may quote it
	}
	if err := single(loaded); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*loaded, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errors.New("it has no current context, or one without a cluster that has a server")
	}
	address, err := url.Parse(config.Host)
	if err != nil || address.Scheme != "https" || address.Host == "" || address.User != nil {
		return nil, errors.New("server: write the URL of the backend, as https://images.example.com/review")
	}
	if config.Insecure {
		return nil, errors.New("insecure-skip-tls-verify: remove it, and give certificate-authority-data")
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, errors.New("its certificates or its key cannot be read")
	}
	return &backend{url: address.String(), client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// single is an error for a kubeconfig that needs what stands elsewhere.
func single(c *clientcmdapi.Config) error {
	for _, cluster := range c.Clusters {
		if cluster != nil && cluster.CertificateAuthority != "" {
			return errors.New("certificate-authority: write certificate-authority-data instead, with the certificates in it")
		}
	}
	for _, user := range c.AuthInfos {
		switch {
		case user == nil:
		case user.ClientCertificate != "" || user.ClientKey != "":
			return errors.New("client-certificate and client-key: write client-certificate-data and client-key-data instead")
		case user.TokenFile != "":
			return errors.New("tokenFile: write token instead")
		case user.Exec != nil || user.AuthProvider != nil:
			return errors.New("exec and auth-provider: write a token, or client-certificate-data and client-key-data: no programs are run")
		}
	}
	return nil
}

// Review implements policy.ImageBackend.
func (b *backend) Review(ctx context.Context, review *imagepolicyv1alpha1.ImageReview) (status imagepolicyv1alpha1.ImageReviewStatus, err error) {
	body, err := json.Marshal(review)
	if err != nil {
		return status, fmt.Errorf("writing an ImageReview: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(body))
	if err != nil {
		return status, fmt.Errorf("asking about images: %w", err)
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
		return status, fmt.Errorf("reading the answer of the image policy backend: %w", err)
	case len(answer) > maxAnswer:
		return status, fmt.Errorf("the answer of the image policy backend is longer than %d KiB", maxAnswer>>10)
	case response.StatusCode < 200 || response.StatusCode > 299:
		after, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return status, apierrors.NewGenericServerResponse(response.StatusCode, http.MethodPost, schema.GroupResource{}, "", "unexpected answer of the image policy backend", max(after, 0), true)
	}
	return statusOf(answer)
}

// unansweredError holds no address and no error of the network in its message,
// which users and authors of policies see.
type unansweredError struct{ err error }

// Error implements error.
func (e *unansweredError) Error() string {
	var unverified *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case errors.As(e.err, &unverified):
		return "the certificate of the image policy backend is not trusted"
	case errors.As(e.err, &op) && op.Op == "remote error": // an alert of TLS
		return "unexpected answer of the image policy backend"
	}
	return "the image policy backend is not reachable"
}

// Unwrap tells whoever asks again what went wrong.
func (e *unansweredError) Unwrap() error { return e.err }

// statusOf reads an answer. One of another kind is no answer.
func statusOf(answer []byte) (imagepolicyv1alpha1.ImageReviewStatus, error) {
	var review imagepolicyv1alpha1.ImageReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return imagepolicyv1alpha1.ImageReviewStatus{}, fmt.Errorf("the answer of the image policy backend is no ImageReview: %w", err)
	}
	version := imagepolicyv1alpha1.SchemeGroupVersion.String()
	if review.Kind != "" && review.Kind != "ImageReview" || review.APIVersion != "" && review.APIVersion != version {
		return imagepolicyv1alpha1.ImageReviewStatus{}, fmt.Errorf("the answer of the image policy backend is of kind %q in version %q instead of ImageReview in %s",
			truncate.String(review.Kind, maxComplaint), truncate.String(review.APIVersion, maxComplaint), version)
	}
	return review.Status, nil
}
