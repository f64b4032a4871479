package audit

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ostiary/ostiary/internal/audit/results"
)

// resourceWatch is a watch of the objects of a resource.
type resourceWatch struct {
	stop  context.CancelFunc
	ended chan struct{} // closed when the watch has missed changes
}

// watchResource removes the results of objects that are deleted after a resource version, and
// has objects with findings read again that change after it, unless a watch does so already. It
// gets the metadata of objects and keeps that of the latter alone.
func (s *Scanner) watchResource(
	ctx context.Context, table *results.Table, gvr schema.GroupVersionResource, version string,
) {
	if known, ok := s.watches[gvr]; ok {
		select {
		case <-known.ended:
			known.stop()
		default:
			return
		}
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	s.watches[gvr] = resourceWatch{stop: stop, ended: ended}
	go func() {
		for ctx.Err() == nil {
			version = s.follow(ctx, table, gvr, version)
			if version == "" { // the next list finds what was missed
				close(ended)
				table.Relist(gvr, time.Now().Add(pollInterval)) // but not in a tight loop
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(pollInterval):
			}
		}
	}()
}

// follow returns the version at which the watch ended, or "" if it has expired.
func (s *Scanner) follow(
	ctx context.Context, table *results.Table, gvr schema.GroupVersionResource, version string,
) string {
	if err := s.budget.request(ctx); err != nil {
		return version
	}
	options := metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}
	w, err := s.metadata.Resource(gvr).Watch(ctx, options)
	if err != nil {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return ""
		}
		return version // without the permission, the next scan finds changes
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return ""
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			continue
		}
		version = object.GetResourceVersion()
		id := results.IDOf(string(object.GetUID()))
		switch {
		case event.Type == watch.Deleted:
			table.Remove(gvr, id)
		case event.Type == watch.Modified && table.HasFinding(gvr, id):
			s.changed.add(newChangedObject(gvr, id, object), time.Now())
		}
	}
	return version
}
