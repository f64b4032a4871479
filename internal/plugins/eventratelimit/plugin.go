// Package eventratelimit limits the rate of events as the native plugin does, with token
// buckets for each replica.
package eventratelimit

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
)

// Limits of memory on every replica.
const (
	maxLimits        = 16
	maxCacheSize     = 1 << 16
	defaultCacheSize = 4096
)

// Config is the plugin's configuration: the native one, of kind Configuration in
// eventratelimit.admission.k8s.io/v1alpha1.
type Config struct {
	define.Typed `json:",inline"`
	// limits is a list of 1 to 16 limits. An event has to be within all of them.
	// Required.
	Limits []Limit `json:"limits"`
}

// Limit is one limit. An event takes a token from a bucket, and is denied if the bucket
// is empty.
type Limit struct {
	// type selects the events that share a bucket: Server all events, Namespace those of
	// a namespace, User those of a user, SourceAndObject those from one source about one
	// object. Required.
	Type LimitType `json:"type"`
	// qps is the number of tokens that a bucket gets each second. Required.
	QPS int32 `json:"qps"`
	// burst is the number of tokens that a bucket holds. A new bucket is full. Required.
	Burst int32 `json:"burst"`
	// cacheSize is the maximum number of buckets, up to 65536. Beyond it, the least
	// recently used bucket is deleted; a later one for the same key is full. It has no
	// effect on Server. Default: 4096.
	CacheSize int32 `json:"cacheSize,omitempty"`
}

// LimitType selects the events that share a bucket.
type LimitType string

// The types of limits.
const (
	Server          LimitType = "Server"
	Namespace       LimitType = "Namespace"
	User            LimitType = "User"
	SourceAndObject LimitType = "SourceAndObject"
)

// Plugin denies events beyond the limits.
type Plugin struct{ limiters []limiter }

// limiter is a limit with its buckets.
type limiter struct {
	Limit
	buckets *buckets
	keyOf   func(*pluginapi.Call) string
}

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginEventRateLimit, func(c Config, at *field.Path) (pluginapi.Plugin, field.ErrorList) {
		errs := c.check(at)
		if len(errs) > 0 {
			return &Plugin{}, errs
		}
		p := &Plugin{}
		for _, l := range c.Limits {
			p.limiters = append(p.limiters, limiter{Limit: l, buckets: newBuckets(l), keyOf: keys()[l.Type]})
		}
		return p, nil
	})
}

func (c Config) check(at *field.Path) field.ErrorList {
	errs := c.Check("eventratelimit.admission.k8s.io/v1alpha1", "Configuration", at)
	at = at.Child("limits")
	switch {
	case len(c.Limits) == 0:
		errs = append(errs, field.Required(at, "add at least one limit, as {type: Namespace, qps: 10, burst: 50}"))
	case len(c.Limits) > maxLimits:
		errs = append(errs, field.TooMany(at, len(c.Limits), maxLimits))
	}
	for i, l := range c.Limits {
		errs = append(errs, l.check(at.Index(i))...)
	}
	return errs
}

func (l Limit) check(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if types := []LimitType{Server, Namespace, User, SourceAndObject}; !slices.Contains(types, l.Type) {
		errs = append(errs, field.NotSupported(at.Child("type"), l.Type, types))
	}
	if l.Burst <= 0 {
		errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive: it is how many events may come at once"))
	}
	if l.QPS <= 0 {
		errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive: it is how many events may come in a second"))
	}
	if l.Type != Server && (l.CacheSize < 0 || l.CacheSize > maxCacheSize) {
		errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, fmt.Sprintf("choose between 1 and %d, or leave it out for %d: every bucket takes memory on every replica", maxCacheSize, defaultCacheSize)))
	}
	return errs
}

// Rules implements pluginapi.Plugin. Events have two API groups, and a request has that of
// the client.
func (*Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{
		define.Rule("", "v1", define.Writes(), "events"),
		define.Rule("events.k8s.io", "v1", define.Writes(), "events"),
	}
}

// Validate implements pluginapi.Validator. An event takes a token of every limit,
// also where one of them refuses it.
func (p *Plugin) Validate(_ context.Context, call *pluginapi.Call) error {
	if call.IsDryRun() {
		return nil // nothing is written
	}
	var reached []error
	now := call.Now()
	for i := range p.limiters {
		l := &p.limiters[i]
		if key := l.keyOf(call); !l.buckets.of(key).AllowN(now, 1) {
			reached = append(reached, fmt.Errorf("limit reached on type %v for key %v", l.Type, key))
		}
	}
	if err := utilerrors.NewAggregate(reached); err != nil {
		return apierrors.NewTooManyRequestsError(err.Error())
	}
	return nil
}

// InheritState implements pluginapi.StatefulPlugin: an unchanged limit keeps its buckets.
func (p *Plugin) InheritState(before pluginapi.Plugin) pluginapi.Plugin {
	earlier, ok := before.(*Plugin)
	if !ok {
		return p
	}
	out := &Plugin{limiters: slices.Clone(p.limiters)}
	for i := range out.limiters[:min(len(out.limiters), len(earlier.limiters))] {
		if out.limiters[i].Limit == earlier.limiters[i].Limit {
			out.limiters[i].buckets = earlier.limiters[i].buckets
		}
	}
	return out
}
