package typechecking

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi"

	"github.com/ostiary/ostiary/internal/typecheck"
)

const (
	// maxDocuments is the number of OpenAPI documents that are kept, of up to 2 MiB each.
	maxDocuments = 8
	// keepFor is how long documents are kept that no check uses.
	keepFor = 5 * time.Minute
	// listFor is how long the list of documents is used. It has their hashes, so that a
	// document is read again only if it has changed.
	listFor = 2 * time.Second
)

// documents reads the OpenAPI documents of an API server, and keeps those that were
// used last. It is safe for concurrent use.
type documents struct {
	client openapi.ClientWithContext
	lock   chan struct{} // holds a value while another goroutine uses the fields below
	list   map[string]openapi.GroupVersionWithContext
	listed time.Time
	kept   map[schema.GroupVersion]*keptDocument
	expiry *time.Timer
}

// keptDocument is a document with the URL that it was read from, which contains its hash.
type keptDocument struct {
	*typecheck.Document
	url  string
	used time.Time
}

func newDocuments(client openapi.ClientWithContext) *documents {
	return &documents{client: client, lock: make(chan struct{}, 1), kept: map[schema.GroupVersion]*keptDocument{}}
}

// get returns the document of a group version, or an error if it cannot be read before
// ctx ends. Without such a document it returns nil.
func (d *documents) get(ctx context.Context, gv schema.GroupVersion) (*typecheck.Document, error) {
	select {
	case d.lock <- struct{}{}:
		defer func() { <-d.lock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := time.Now()
	if d.list == nil || now.Sub(d.listed) > listFor {
		list, err := d.client.PathsWithContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing the OpenAPI documents: %w", err)
		}
		d.list, d.listed = list, now
	}
	at, ok := d.list[pathOf(gv)]
	if !ok {
		return nil, nil
	}
	if kept := d.kept[gv]; kept != nil && kept.url == at.ServerRelativeURL() {
		kept.used = now
		return kept.Document, nil
	}
	return d.read(ctx, gv, at, now)
}

func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

func (d *documents) read(ctx context.Context, gv schema.GroupVersion, from openapi.GroupVersionWithContext,
	now time.Time) (*typecheck.Document, error) {
	text, err := from.SchemaWithContext(ctx, runtime.ContentTypeJSON)
	if err != nil {
		return nil, fmt.Errorf("reading the OpenAPI document of %s: %w", gv, err)
	}
	parsed, err := typecheck.ParseDocument(text)
	if err != nil {
		return nil, fmt.Errorf("reading the OpenAPI document of %s: %w", gv, err)
	}
	if d.kept[gv] == nil && len(d.kept) == maxDocuments {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(d.kept)),
			func(a, b schema.GroupVersion) int { return d.kept[a].used.Compare(d.kept[b].used) })
		delete(d.kept, oldest)
	}
	d.kept[gv] = &keptDocument{Document: parsed, url: from.ServerRelativeURL(), used: now}
	if d.expiry == nil {
		d.expiry = time.AfterFunc(keepFor, d.expire)
	}
	return parsed, nil
}

// expire forgets documents that no check has used for some time.
func (d *documents) expire() {
	d.lock <- struct{}{}
	defer func() { <-d.lock }()
	maps.DeleteFunc(d.kept, func(_ schema.GroupVersion, kept *keptDocument) bool { return time.Since(kept.used) >= keepFor })
	d.expiry = nil
	if len(d.kept) > 0 {
		d.expiry = time.AfterFunc(keepFor, d.expire)
	}
}
