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

// deletionWatch is a watch for deleted objects of a resource.
type deletionWatch struct {
	stop  context.CancelFunc
	ended chan struct{} // closed when the watch has missed deletions
}

// watchDeletions removes the results of objects that are deleted after a resource version,
// unless a watch does so already. It gets the metadata of objects and keeps none.
func (s *Scanner) watchDeletions(ctx context.Context, table *results.Table, gvr schema.GroupVersionResource, version string) {
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
	s.watches[gvr] = deletionWatch{stop: stop, ended: ended}
	go func() {
		for ctx.Err() == nil {
			version = s.followDeletions(ctx, table, gvr, version)
			if version == "" { // the next list finds what was deleted
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

// followDeletions returns the version at which the watch ended, or "" if it has expired.
func (s *Scanner) followDeletions(ctx context.Context, table *results.Table, gvr schema.GroupVersionResource, version string) string {
	if err := s.budget.request(ctx); err != nil {
		return version
	}
	w, err := s.metadata.Resource(gvr).Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return ""
		}
		return version // without the permission, the next scan finds deletions
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
		if version = object.GetResourceVersion(); event.Type == watch.Deleted {
			table.Remove(gvr, results.IDOf(string(object.GetUID())))
		}
	}
	return version
}
