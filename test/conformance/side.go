package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/test/controlplane"
)

// Kinds that the engines are configured with.
const (
	kindValidatingPolicy  = "ValidatingAdmissionPolicy"
	kindValidatingBinding = "ValidatingAdmissionPolicyBinding"
	kindMutatingPolicy    = "MutatingAdmissionPolicy"
	kindMutatingBinding   = "MutatingAdmissionPolicyBinding"
)

// parallel is how many requests are under way at a time on one side.
const parallel = 8

// side is one of the two control planes.
type side struct {
	name    string
	plane   *controlplane.ControlPlane
	http    *http.Client
	host    string
	dynamic dynamic.Interface
	audit   *auditLog
	minor   int // version of Kubernetes
}

func newSide(name string, plane *controlplane.ControlPlane) (*side, error) {
	config := plane.Config()
	config.WarningHandler = rest.NoWarnings{}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	objects, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making a client of objects: %w", err)
	}
	minor, err := minorOf(config, client)
	if err != nil {
		return nil, err
	}
	return &side{
		name:    name,
		plane:   plane,
		http:    client,
		host:    config.Host,
		dynamic: objects,
		audit:   newAuditLog(plane.AuditLog(0)),
		minor:   minor,
	}, nil
}

// minorOf is the minor version of the control plane.
func minorOf(config *rest.Config, http *http.Client) (int, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, http)
	if err != nil {
		return 0, fmt.Errorf("making a client of the version: %w", err)
	}
	info, err := client.ServerVersion()
	if err != nil {
		return 0, fmt.Errorf("reading the version: %w", err)
	}
	minor, err := strconv.Atoi(info.Minor)
	if err != nil {
		return 0, fmt.Errorf("reading the version %q: %w", info.GitVersion, err)
	}
	return minor, nil
}

// resourceOf guesses the resource of a kind, as its plural. All kinds that the
// suite makes follow the rule.
func resourceOf(gvk schema.GroupVersionKind) schema.GroupVersionResource {
	plural := strings.ToLower(gvk.Kind) + "s"
	if base, ok := strings.CutSuffix(plural, "ys"); ok {
		plural = base + "ies"
	}
	return gvk.GroupVersion().WithResource(plural)
}

func (s *side) client(o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource := s.dynamic.Resource(resourceOf(o.GroupVersionKind()))
	if kind := o.GetKind(); s.minor < 36 && (kind == kindMutatingPolicy || kind == kindMutatingBinding) {
		o.SetAPIVersion(admissionregistrationv1beta1.SchemeGroupVersion.String())
		resource = s.dynamic.Resource(resourceOf(o.GroupVersionKind()))
	}
	if ns := o.GetNamespace(); ns != "" {
		return resource.Namespace(ns)
	}
	return resource
}

func (s *side) create(ctx context.Context, o *unstructured.Unstructured) error {
	_, err := s.client(o).Create(ctx, o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return fmt.Errorf("creating %s %s for %s: %w", o.GetKind(), o.GetName(), s.name, err)
	}
	return nil
}

func (s *side) createAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, o := range objects {
		group.Go(func() error { return s.create(ctx, o) })
	}
	return group.Wait()
}

func (s *side) deleteAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, o := range objects {
		group.Go(func() error {
			if err := s.client(o).Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting %s %s for %s: %w", o.GetKind(), o.GetName(), s.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// reply is what came back of a request, as it came.
type reply struct {
	code     int
	body     []byte
	warnings []string
	auditID  string
}

// send puts a request to the API server.
func (s *side) send(ctx context.Context, r Request) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	sent, err := r.sent()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, s.host+r.path(), bytes.NewReader(sent))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	r.headers(req.Header)
	id := uuid.NewString()
	req.Header.Set("Audit-Id", id)
	response, err := s.http.Do(req)
	switch {
	case connectionBroken(err):
		return &reply{body: []byte(brokenAnswer), auditID: id}, nil
	case err != nil:
		return nil, fmt.Errorf("sending to %s: %w", s.name, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 8<<20))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", s.name, err)
	}
	headers, errs := utilnet.ParseWarningHeaders(response.Header["Warning"])
	if len(errs) > 0 {
		return nil, fmt.Errorf("reading the warnings of %s: %w", s.name, errors.Join(errs...))
	}
	out := &reply{code: response.StatusCode, body: body, auditID: id}
	for _, h := range headers {
		out.warnings = append(out.warnings, h.Text)
	}
	return out, nil
}

// brokenAnswer is what a client gets of an API server that panics over a request.
const brokenAnswer = "the connection was broken off"

// connectionBroken tells that from a server that cannot be reached.
func connectionBroken(err error) bool {
	return err != nil && strings.Contains(err.Error(), "INTERNAL_ERROR; received from peer")
}

// sent is the body. The API server reads the options of a deletion from the
// body or else from the query, not from both.
func (r Request) sent() ([]byte, error) {
	if r.Method != http.MethodDelete || r.Stored || len(r.Body) == 0 {
		return r.Body, nil
	}
	var options map[string]any
	if err := json.Unmarshal(r.Body, &options); err != nil {
		return nil, fmt.Errorf("reading the options of a deletion: %w", err)
	}
	options["dryRun"] = []string{metav1.DryRunAll}
	out, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("writing the options of a deletion: %w", err)
	}
	return out, nil
}

// path adds dryRun to the query of whatever writes, unless it is to be stored.
func (r Request) path() string {
	if r.Stored || r.Method == http.MethodGet || strings.Contains(r.Path, "/exec") {
		return r.Path
	}
	if strings.Contains(r.Path, "?") {
		return r.Path + "&dryRun=All"
	}
	return r.Path + "?dryRun=All"
}

func (r Request) headers(h http.Header) {
	h.Set("Accept", "application/json")
	h.Set("User-Agent", "conformance")
	h.Set("Content-Type", "application/json")
	if r.Type != "" {
		h.Set("Content-Type", r.Type)
	}
	if r.User == nil {
		return
	}
	h.Set("Impersonate-User", r.User.Name)
	if r.User.UID != "" {
		h.Set("Impersonate-Uid", r.User.UID)
	}
	for _, g := range r.User.Groups {
		h.Add("Impersonate-Group", g)
	}
	for key, values := range r.User.Extra {
		for _, v := range values {
			h.Add("Impersonate-Extra-"+key, v)
		}
	}
}
