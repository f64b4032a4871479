package exceptions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/controllers/internal/objects"
)

const (
	pageSize      = 500
	pageTimeout   = 20 * time.Second
	retryInterval = time.Second
	// watchSeconds is how long API servers keep a watch open, and watchTimeout how long this
	// replica does. A watch that hangs unnoticed is so replaced before maxSilence.
	watchSeconds = 20
	watchTimeout = 24 * time.Second
)

// target gets the objects that a watcher reads, one at a time from one goroutine. The JSON is valid
// until the call returns.
type target interface {
	// beginList is called before the objects of a list, and endList after the last one, with the
	// resource version of the list.
	beginList()
	endList(version string)
	put(raw []byte, isNew bool) error
	remove(raw []byte) error
	// contacted is called whenever an API server has confirmed that the target is up to date.
	contacted()
	// isIncomplete reports whether the objects have to be listed again.
	isIncomplete() bool
}

// watcher lists and watches the objects of a resource. Unlike a reflector it holds one object at a
// time, because users can store more of them than the memory has room for.
type watcher struct {
	from     objects.Collection
	selector string // of fields
	target   target
	log      logr.Logger

	version string // up to which the target has every change; empty before a list
}

// run lists and watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	reported := ""
	for ctx.Err() == nil {
		err := w.step(ctx)
		if err == nil {
			reported = ""
			continue
		}
		if text := err.Error(); text != reported && ctx.Err() == nil {
			reported = text
			w.log.Error(err, "reading failed, retrying", "resource", w.from.Resource.Resource)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(retryInterval, 1)):
		}
	}
}

func (w *watcher) step(ctx context.Context) error {
	if w.version == "" || w.target.isIncomplete() {
		return w.list(ctx)
	}
	return w.watch(ctx)
}

func (w *watcher) list(ctx context.Context) error {
	w.target.beginList()
	o := metav1.ListOptions{Limit: pageSize, FieldSelector: w.selector}
	for {
		page, err := w.page(ctx, o)
		if err != nil {
			return fmt.Errorf("listing %s: %w", w.from.Resource.Resource, err)
		}
		if o.Continue = page.Continue; o.Continue == "" {
			w.version = page.ResourceVersion
			w.target.contacted()
			w.target.endList(w.version)
			return nil
		}
	}
}

func (w *watcher) page(ctx context.Context, o metav1.ListOptions) (metav1.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return w.from.List(ctx, o, func() error { return nil }, func(raw []byte) error { return w.target.put(raw, true) })
}

// watch follows the changes after the last version until the API server ends the watch.
func (w *watcher) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	began := time.Now()
	events, err := w.from.Watch(ctx, metav1.ListOptions{
		FieldSelector: w.selector, ResourceVersion: w.version, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](watchSeconds),
	})
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) { // no answer
			return fmt.Errorf("watching %s: %w", w.from.Resource.Resource, err)
		}
		return w.failed(err)
	}
	defer func() { _ = events.Close() }()
	w.target.contacted()
	for n := 0; ; n++ {
		kind, raw, err := events.Next()
		switch {
		case err != nil && n == 0 && time.Since(began) < retryInterval:
			return fmt.Errorf("watching %s: the API server ended the watch at once: %w", w.from.Resource.Resource, err)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err != nil && ctx.Err() != nil:
			return nil // the next watch begins where this one ended
		case err == nil:
			err = w.apply(kind, raw)
		}
		if err != nil {
			return w.failed(err)
		}
		w.target.contacted()
	}
}

// failed makes a list follow, unless the next watch can begin where this one ended.
func (w *watcher) failed(err error) error {
	if !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsForbidden(err) {
		w.version = ""
	}
	return fmt.Errorf("watching %s: %w", w.from.Resource.Resource, err)
}

func (w *watcher) apply(kind apiwatch.EventType, raw []byte) error {
	var err error
	switch kind {
	case apiwatch.Added, apiwatch.Modified:
		err = w.target.put(raw, kind == apiwatch.Added)
	case apiwatch.Deleted:
		err = w.target.remove(raw)
	case apiwatch.Error:
		status := &metav1.Status{}
		if err = json.Unmarshal(raw, status); err == nil {
			err = apierrors.FromObject(status)
		}
	}
	if err != nil {
		return err
	}
	object, err := identify(raw)
	w.version = object.ResourceVersion
	return err
}

// identify reads the metadata of an object.
func identify(raw []byte) (metav1.ObjectMeta, error) {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &object); err != nil {
		return metav1.ObjectMeta{}, fmt.Errorf("reading the metadata of an object: %w", err)
	}
	return object.ObjectMeta, nil
}
