package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/internal/versionskew"
)

const (
	pageSize    = 500
	pageTimeout = 20 * time.Second
	// maxHalvings bounds how often the size of pages is halved: to 31 objects.
	maxHalvings   = 4
	retryInterval = time.Second
	// watchSeconds is how long API servers keep a watch open, and watchTimeout how long this
	// replica does. A watch that hangs unnoticed is so replaced within half a minute.
	watchSeconds = 20
	watchTimeout = 24 * time.Second
	// maxUnconfirmed is how long a watch has to reach a version, before a later one is asked for. It
	// is longer than that of a watch, at whose end API servers confirm the latest version.
	maxUnconfirmed = 30 * time.Second
)

// Target gets the objects that a Follower reads, one at a time from one goroutine. The JSON is valid
// until the call returns.
type Target interface {
	// BeginList is called before the objects of a list, and EndList after the last one, with the
	// resource version of the list.
	BeginList()
	EndList(version string)
	Put(raw []byte, isNew bool) error
	Remove(raw []byte) error
	// Contacted is called whenever an API server has confirmed that the target is up to date.
	Contacted()
	// IsIncomplete reports whether the objects have to be listed again.
	IsIncomplete() bool
}

// Follower lists and watches the objects of a resource. Unlike a reflector it holds one object at a
// time, because users can store more of them than the memory has room for.
type Follower struct {
	From     Collection
	Selector string // of fields
	Target   Target
	Log      logr.Logger
	// Again ends the current watch, so that Target.IsIncomplete is called; it may be nil.
	Again <-chan struct{}
	// Report is called with the error of each list and watch, and with nil after a list and when a watch
	// has begun. It may be nil.
	Report func(error)
	// Dates makes AsOf known, with one request before each watch.
	Dates bool

	pageTimeout  time.Duration // 0 means 20 s
	halvings     int           // of the size of pages, because some were not complete in time; a complete list takes one back
	version      string        // up to which the target has every change; empty before a list
	asOf         atomic.Pointer[time.Time]
	asked        time.Time // when the API server had askedVersion as the latest one
	askedVersion string    // empty if the target has reached it
}

// AsOf returns a time at which the target had every change that was stored before; zero if none is
// known. A watch that delivers late, or that an API server feeds from an old state, does not move it.
func (f *Follower) AsOf() time.Time { return ptr.Deref(f.asOf.Load(), time.Time{}) }

// Run lists and watches until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	reported := ""
	for ctx.Err() == nil {
		err := f.step(ctx)
		f.report(ctx, err)
		if err == nil {
			reported = ""
			continue
		}
		if text := err.Error(); text != reported && ctx.Err() == nil {
			reported = text
			f.Log.Error(err, "reading failed, retrying", "resource", f.From.Resource.Resource)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(retryInterval, 1)):
		}
	}
}

func (f *Follower) report(ctx context.Context, err error) {
	if f.Report != nil && ctx.Err() == nil {
		f.Report(err)
	}
}

func (f *Follower) step(ctx context.Context) error {
	if f.version == "" || f.Target.IsIncomplete() {
		return f.list(ctx)
	}
	if err := f.ask(ctx); err != nil {
		return err
	}
	return f.watch(ctx)
}

// ask asks for the latest version, which the target has to reach. Without a resource version in the
// request, the answer is not older than the request:
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list.
func (f *Follower) ask(ctx context.Context) error {
	if !f.Dates || f.askedVersion != "" && time.Since(f.asked) < maxUnconfirmed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	began, from := time.Now(), f.From
	from.MetadataOnly = true
	page, err := from.List(ctx, metav1.ListOptions{Limit: 1}, func() error { return nil }, func([]byte) error { return nil })
	if err != nil {
		return fmt.Errorf("listing %s: %w", f.From.Resource.Resource, err)
	}
	f.asked, f.askedVersion = began, page.ResourceVersion
	f.reach()
	return nil
}

// reach notes that the target has every change up to the version.
func (f *Follower) reach() {
	if f.askedVersion != "" && versionskew.Reached(f.version, f.askedVersion) {
		f.asOf.Store(new(f.asked))
		f.askedVersion = ""
	}
}

func (f *Follower) list(ctx context.Context) error {
	f.Target.BeginList()
	began := time.Now()
	o := metav1.ListOptions{Limit: pageSize >> f.halvings, FieldSelector: f.Selector}
	for {
		page, err := f.page(ctx, o)
		if errors.Is(err, context.DeadlineExceeded) { // the target can take long for objects that users make
			f.halvings = min(f.halvings+1, maxHalvings)
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", f.From.Resource.Resource, err)
		}
		if o.Continue = page.Continue; o.Continue == "" {
			f.version, f.askedVersion = page.ResourceVersion, ""
			f.halvings = max(f.halvings-1, 0) // what was slow may have been the API server
			f.asOf.Store(&began)
			f.Target.Contacted()
			f.Target.EndList(f.version)
			return nil
		}
	}
}

func (f *Follower) page(ctx context.Context, o metav1.ListOptions) (metav1.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(f.pageTimeout, pageTimeout))
	defer cancel()
	return f.From.List(ctx, o, func() error { return nil }, func(raw []byte) error { return f.Target.Put(raw, true) })
}

// watch follows the changes after the last version until the API server ends the watch.
func (f *Follower) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	go func() {
		select {
		case <-f.Again:
			cancel()
		case <-ctx.Done():
		}
	}()
	began := time.Now()
	events, err := f.From.Watch(ctx, metav1.ListOptions{
		FieldSelector: f.Selector, ResourceVersion: f.version, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](watchSeconds),
	})
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) { // no answer
			return fmt.Errorf("watching %s: %w", f.From.Resource.Resource, err)
		}
		return f.failed(err)
	}
	defer func() { _ = events.Close() }()
	f.Target.Contacted()
	f.report(ctx, nil)
	for n := 0; ; n++ {
		kind, raw, err := events.Next()
		switch {
		case err != nil && n == 0 && time.Since(began) < retryInterval:
			return fmt.Errorf("watching %s: the API server ended the watch at once: %w", f.From.Resource.Resource, err)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err != nil && ctx.Err() != nil:
			return nil // the next watch begins where this one ended
		case err == nil:
			err = f.apply(kind, raw)
		}
		if err != nil {
			return f.failed(err)
		}
		f.Target.Contacted()
	}
}

// failed makes a list follow, unless the next watch can begin where this one ended.
func (f *Follower) failed(err error) error {
	if !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsForbidden(err) {
		f.version = ""
	}
	return fmt.Errorf("watching %s: %w", f.From.Resource.Resource, err)
}

func (f *Follower) apply(kind apiwatch.EventType, raw []byte) error {
	var err error
	switch kind {
	case apiwatch.Added, apiwatch.Modified:
		err = f.Target.Put(raw, kind == apiwatch.Added)
	case apiwatch.Deleted:
		err = f.Target.Remove(raw)
	case apiwatch.Error:
		status := &metav1.Status{}
		if err = json.Unmarshal(raw, status); err == nil {
			err = apierrors.FromObject(status)
		}
	}
	if err != nil {
		return err
	}
	object, err := Identify(raw)
	f.version = object.ResourceVersion
	f.reach()
	return err
}

// Identify reads the metadata of an object.
func Identify(raw []byte) (metav1.ObjectMeta, error) {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &object); err != nil {
		return metav1.ObjectMeta{}, fmt.Errorf("reading the metadata of an object: %w", err)
	}
	return object.ObjectMeta, nil
}
