package policyvalidator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/internal/audit"
)

const (
	// pageObjects and pageBytes bound a page of a list, and so the memory of a scan. Objects have up to 1.5 MiB.
	pageObjects = 250
	pageBytes   = 8 << 20
)

// errLimit means that objects remain that were not read because of a limit.
var errLimit = errors.New("a limit was reached")

// resource is a resource whose objects are listed.
type resource audit.Resource

// plural returns the kind in the plural, such as NetworkPolicies.
func (r resource) plural() string {
	n := 0
	for n < min(len(r.Kind.Kind), len(r.Resource)) && strings.EqualFold(r.Kind.Kind[:n+1], r.Resource[:n+1]) {
		n++
	}
	return r.Kind.Kind[:n] + r.Resource[n:]
}

func (r resource) path() string {
	if r.Group == "" {
		return "/api/" + r.Version + "/" + r.Resource
	}
	return "/apis/" + r.Group + "/" + r.Version + "/" + r.Resource
}

// page is a part of a list.
type page struct {
	Metadata metav1.ListMeta   `json:"metadata"`
	Items    []json.RawMessage `json:"items"`
}

// list passes the objects of a resource to a function, at most left of them. It returns errLimit if there are more.
func (r resource) list(ctx context.Context, client rest.Interface, left *int, visit func(*audit.Object)) error {
	for next := ""; ; {
		if *left <= 0 {
			return errLimit
		}
		p, err := r.page(ctx, client, min(pageObjects, *left), next)
		if err != nil {
			return err
		}
		for _, raw := range p.Items {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			o, err := r.object(raw)
			if err != nil {
				return err
			}
			visit(o)
		}
		*left -= len(p.Items)
		if next = p.Metadata.Continue; next == "" {
			return nil
		}
	}
}

func (r resource) page(ctx context.Context, client rest.Interface, limit int, next string) (*page, error) {
	request := client.Get().AbsPath(r.path()).SetHeader("Accept", "application/json").Param("limit", strconv.Itoa(limit))
	if next != "" {
		request.Param("continue", next)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, pageBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading a page: %w", err)
	case len(raw) > pageBytes:
		return nil, errLimit
	}
	p := &page{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("decoding a page: %w", err)
	}
	return p, nil
}

// object returns an object of a list. Those of built-in kinds have no apiVersion and kind there.
func (r resource) object(raw json.RawMessage) (*audit.Object, error) {
	var has struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct{ Namespace, Name string } `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &has); err != nil {
		return nil, fmt.Errorf("decoding an object: %w", err)
	}
	o := &audit.Object{Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: has.Metadata.Namespace, Name: has.Metadata.Name, JSON: raw}
	if r.GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		o.Namespace = o.Name
	}
	if has.Kind == "" {
		o.JSON = fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,%s`, r.Kind.GroupVersion().String(), r.Kind.Kind, raw[1:])
	}
	return o, nil
}
