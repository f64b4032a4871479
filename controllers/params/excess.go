package params

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ostiary/ostiary/internal/cachebudget"
)

const (
	// excludedInterval is the interval between attempts to read namespaces again that had too
	// many objects, and excludedAtOnce the number of them.
	excludedInterval = time.Minute
	excludedAtOnce   = 8
	// excludedNames is the number of namespaces that a problem names.
	excludedNames = 3
)

// errFull ends a list of objects that do not fit.
var errFull = errors.New("the objects do not fit")

// retryExcluded lists once a minute some of the namespaces that had too many objects. It ends
// each list as soon as it is too large. If the objects of one fit, it calls relist.
func (s *source) retryExcluded(ctx context.Context, relist func()) {
	last := ""
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		namespaces := s.objects.excludedAfter(last, excludedAtOnce)
		var fitting []string
		for _, namespace := range namespaces {
			last = namespace
			if s.fits(ctx, namespace) {
				fitting = append(fitting, namespace)
			}
		}
		if len(fitting) > 0 {
			s.objects.retryList(fitting)
			relist()
		}
	}, s.memory.retryInterval, 0.5, true)
}

// fits reports whether the objects of a namespace fit now.
func (s *source) fits(ctx context.Context, namespace string) bool {
	from := s.from
	if namespace != "" {
		from.Namespace = namespace
	}
	var size int64
	_, err := s.page(ctx, from, metav1.ListOptions{ResourceVersion: "0"}, func(o *item) error {
		if size += o.size; o.tooLarge || !s.objects.cache.Fits(namespace, size) {
			return errFull
		}
		return nil
	})
	return err == nil
}

// explainExcess returns the error of requests that read the params of a namespace over its
// limit.
func (w *watch) explainExcess(namespace string, why cachebudget.Excess) error {
	who := "namespace " + namespace + " has"
	if namespace == "" {
		who = "the cluster has"
	}
	limit := fmt.Sprintf("more than its share of %s", mebibytes(why.Limit))
	if why.Total {
		limit = fmt.Sprintf("more than any other, and all together exceed %s", mebibytes(why.Limit))
	}
	return fmt.Errorf("%s at least %s of %s that policy params can select, %s: delete some, narrow paramRef.selector, or raise --max-cache-memory",
		who, mebibytes(why.Used), describe(w.gvk), limit)
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// excess returns what to do about the namespaces over their limit; "" if there are none.
func (w *watch) excess() string {
	k := w.known.Load()
	if k == nil {
		return ""
	}
	first, all := k.objects.excludedNamespaces(excludedNames)
	if all == 0 {
		return ""
	}
	if len(first) == 1 && first[0] == "" {
		return k.objects.excess("").Error()
	}
	more := ""
	if n := all - len(first); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("failurePolicy decides requests that read params in these namespaces: %s%s: they have too many %s: delete some, narrow paramRef.selector, or raise --max-cache-memory",
		strings.Join(first, ", "), more, describe(w.gvk))
}
