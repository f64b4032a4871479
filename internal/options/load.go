package options

import (
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Load bounds concurrent work. Zero values mean the defaults of the server.
type Load struct {
	Evaluations int
	InFlight    int
	Connections int
	BodyMemory  resource.QuantityValue
	CacheMemory resource.QuantityValue
}

const (
	// maxCount keeps a typing error from disabling a limit.
	maxCount = 100_000
	// minBodyMemory is the size of the largest body. maxBodyMemory is more than any
	// load needs.
	minBodyMemory, maxBodyMemory = 28 << 20, 4 << 30
	// minCacheMemory gives each namespace a share of 2 MiB, so that it can have one object of
	// any size that API servers store.
	minCacheMemory, maxCacheMemory = 16 << 20, 64 << 30
)

func (o *Options) bindLoad(f *pflag.FlagSet) {
	f.IntVar(&o.Load.Evaluations, "max-evaluations", 0, "number of concurrent evaluations; 0 means 4 per processor. An eighth of it, at least 1, is for reviews larger than 512 KiB")
	f.IntVar(&o.Load.InFlight, "max-in-flight", 0, "number of requests that are evaluated or queued, above which requests are answered with 503; 0 means 1000")
	f.IntVar(&o.Load.Connections, "max-connections", 0, "number of connections to the webhook, above which silent ones are closed; 0 means 2000, or fewer if RLIMIT_NOFILE is low")
	f.Var(&o.Load.BodyMemory, "max-body-memory", "memory for request bodies larger than 32Ki, all together; 0 means 64Mi")
	f.Var(&o.Load.CacheMemory, "max-cache-memory", "memory for cached params and objects of plugins, all together; 0 means 64Mi. A namespace can use an eighth of it, and requests that read params in a namespace beyond that are errors")
}

func (o *Options) validateLoad() field.ErrorList {
	var errs field.ErrorList
	for flag, n := range map[string]int{"--max-evaluations": o.Load.Evaluations, "--max-in-flight": o.Load.InFlight, "--max-connections": o.Load.Connections} {
		if n < 0 || n > maxCount {
			errs = append(errs, field.Invalid(field.NewPath(flag), n, "give a number from 1 to 100000, or 0 for the default"))
		}
	}
	if o.Load.InFlight > 0 && o.Load.Evaluations > o.Load.InFlight {
		errs = append(errs, field.Invalid(field.NewPath("--max-in-flight"), o.Load.InFlight, "give at least --max-evaluations"))
	}
	if m := o.Load.BodyMemory; !m.IsZero() && (m.Value() < minBodyMemory || m.Value() > maxBodyMemory) {
		errs = append(errs, field.Invalid(field.NewPath("--max-body-memory"), m.String(), "give from 28Mi, the size of the largest body, to 4Gi, or 0 for the default"))
	}
	if m := o.Load.CacheMemory; !m.IsZero() && (m.Value() < minCacheMemory || m.Value() > maxCacheMemory) {
		errs = append(errs, field.Invalid(field.NewPath("--max-cache-memory"), m.String(), "give from 16Mi to 64Gi, or 0 for the default"))
	}
	return errs
}
