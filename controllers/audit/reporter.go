package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/registration"
)

const (
	// reportPageSize is the number of reports that one request lists, without their content.
	reportPageSize = 500
	// minPause and maxPause limit the pause after an API server that is overloaded or whose
	// storage is full. Each failure doubles it.
	minPause, maxPause = 10 * time.Second, 5 * time.Minute
)

// reportKey names a part.
type reportKey struct{ namespace, name string }

func (k reportKey) resource() schema.GroupVersionResource {
	if k.namespace == "" {
		return clusterReports()
	}
	return namespacedReports()
}

func namespacedReports() schema.GroupVersionResource {
	reports, _ := results.ReportResources()
	return reports
}

func clusterReports() schema.GroupVersionResource {
	_, reports := results.ReportResources()
	return reports
}

// reporter writes reports. It belongs to one goroutine.
type reporter struct {
	client   dynamic.Interface
	metadata metadata.Interface
	wait     func(context.Context) error // before each request
	log      logr.Logger

	written map[reportKey]uint64 // hashes; 0 for one whose content is not known
	listed  bool                 // written has those of an earlier leader
	resume  time.Time
	pause   time.Duration
	problem string // last logged
}

// write writes the parts that have changed, and deletes those that are no longer needed.
// It reports whether it is complete; otherwise it is to be called again.
func (w *reporter) write(ctx context.Context, reports []results.Report, now time.Time) bool {
	if now.Before(w.resume) {
		return false
	}
	err := w.writeAll(ctx, reports)
	w.after(err, now)
	return err == nil
}

func (w *reporter) writeAll(ctx context.Context, reports []results.Report) error {
	if err := w.list(ctx); err != nil {
		return err
	}
	wanted := map[reportKey]bool{}
	for _, r := range reports {
		parts, err := r.Parts()
		if err != nil {
			return err
		}
		for _, part := range parts {
			wanted[reportKey{part.GetNamespace(), part.GetName()}] = true
			if err := w.apply(ctx, part); err != nil {
				return err
			}
		}
	}
	for key := range w.written {
		if wanted[key] {
			continue
		}
		if err := w.delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// list finds the reports of an earlier leader.
func (w *reporter) list(ctx context.Context) error {
	if w.listed {
		return nil
	}
	w.written = map[reportKey]uint64{}
	for _, gvr := range []schema.GroupVersionResource{namespacedReports(), clusterReports()} {
		for next := ""; ; {
			if err := w.wait(ctx); err != nil {
				return err
			}
			list, err := w.metadata.Resource(gvr).List(ctx, metav1.ListOptions{
				LabelSelector: registration.LabelManagedBy + "=" + registration.ManagedBy,
				Limit:         reportPageSize,
				Continue:      next,
			})
			if err != nil {
				return err
			}
			for i := range list.Items {
				w.written[reportKey{list.Items[i].Namespace, list.Items[i].Name}] = 0
			}
			if next = list.Continue; next == "" {
				break
			}
		}
	}
	w.listed = true
	return nil
}

// apply writes a part that has changed. A namespace that is gone has no report.
func (w *reporter) apply(ctx context.Context, part *unstructured.Unstructured) error {
	data, err := json.Marshal(part)
	if err != nil {
		return fmt.Errorf("encoding a report: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write(data) // never fails
	key := reportKey{part.GetNamespace(), part.GetName()}
	if w.written[key] == h.Sum64() {
		return nil
	}
	if err := w.wait(ctx); err != nil {
		return err
	}
	force := true
	_, err = w.client.Resource(key.resource()).Namespace(key.namespace).Patch(ctx, key.name, types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: results.ReportManager, Force: &force})
	switch {
	case err == nil:
		w.written[key] = h.Sum64()
	case isGone(err, key.namespace):
		delete(w.written, key)
		return nil
	}
	return err
}

// isGone reports whether a namespace does not exist or is being deleted.
func isGone(err error, namespace string) bool {
	if namespace == "" {
		return false
	}
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) {
		return status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
	}
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

func (w *reporter) delete(ctx context.Context, key reportKey) error {
	if err := w.wait(ctx); err != nil {
		return err
	}
	err := w.client.Resource(key.resource()).Namespace(key.namespace).Delete(ctx, key.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	delete(w.written, key)
	return nil
}

// after sets the pause after a failure. Without the kinds of reports, everything is written
// when they exist again.
func (w *reporter) after(err error, now time.Time) {
	problem := ""
	switch {
	case err == nil:
		w.pause = 0
	case apierrors.IsNotFound(err):
		w.listed, w.pause, w.resume = false, 0, now.Add(maxPause)
	default:
		w.pause = min(max(2*w.pause, minPause), maxPause)
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			w.pause = max(w.pause, min(time.Duration(seconds)*time.Second, maxPause))
		}
		w.resume = now.Add(w.pause)
		problem = err.Error()
	}
	if problem != "" && problem != w.problem && !errors.Is(err, context.Canceled) {
		w.log.Info("cannot write reports", "error", problem, "pause", w.pause.String())
	}
	w.problem = problem
}
