package chaos

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// tenancy is what a hostile tenant has to know.
type tenancy struct {
	Kubeconfigs []string // of the API servers
	Enforced    bool     // Ostiary's policies are, and not a webhook that allows everything
	From, To    int      // which ConfigMaps of 1 MB it creates
	Small       int      // how many small ones
}

// Numbers of senders. The parallel creations are as many as an API server takes from
// one user at a time before it queues them.
const (
	largeSenders  = 4
	smallSenders  = 8
	createSenders = 64
	costlySenders = 4
)

// tenantKinds are the attacks of a tenant: large objects and many small ones where
// policies read params, parallel requests that read all of these params, denials that are
// evaded in two steps, and objects that cost much.
func tenantKinds() []string { return []string{"costly", "creates", "large", "small", "steps"} }

// attackAsTenant does all of it at a time, in the tenant's own namespace, for which the
// role edit is enough. It ends when the time is over and all ConfigMaps are stored.
func attackAsTenant(ctx context.Context, a attack, report *report) {
	t, err := newTenant(a.Tenancy.Kubeconfigs, hostileUser, hostilePlace)
	if err != nil {
		report.wrong("making a tenant: %v", err)
		return
	}
	h := hostile{t, a.Tenancy, report}
	var group sync.WaitGroup
	each := func(ctx context.Context, senders, from, to int, send func(context.Context, int)) {
		for i := range senders {
			group.Go(func() {
				for n := from + i; n < to && ctx.Err() == nil; n += senders {
					send(ctx, n)
				}
			})
		}
	}
	const endless = 1 << 40
	requests, cancel := context.WithTimeout(ctx, a.Lasts)
	defer cancel()
	each(ctx, largeSenders, a.Tenancy.From, a.Tenancy.To, h.createLarge)
	each(ctx, smallSenders, 0, a.Tenancy.Small, h.createSmall)
	each(requests, createSenders, 0, endless, h.createService)
	each(requests, costlySenders, 0, endless, h.createCostly)
	each(requests, 1, 0, endless, h.takeTwoSteps)
	group.Wait()
}

// hostile is a tenant that attacks.
type hostile struct {
	*tenant
	tenancy
	report *report
}

// attempt sends a request, and counts its answer unless the attack is over.
func (h hostile) attempt(ctx context.Context, method, api, resource, body string) (int, string) {
	code, text := h.send(ctx, method, api, resource, body)
	switch {
	case ctx.Err() != nil:
		return 0, ""
	case code == 0:
		h.report.count("broken")
	case code == http.StatusInternalServerError: // of an API server: replicas have no such answer
		h.report.count("500 of an API server")
	default:
		h.report.count(strconv.Itoa(code))
	}
	return code, text
}

// store creates a ConfigMap. One of an earlier phase is as good. It insists, because API
// servers reject requests under load.
func (h hostile) store(ctx context.Context, kind, name, key, value string) {
	body := fmt.Sprintf(`{"metadata":{"name":%q},"data":{%q:%q}}`, name, key, value)
	for range 20 {
		code, _ := h.attempt(ctx, http.MethodPost, "api/v1", "configmaps", body)
		if code == http.StatusCreated || code == http.StatusConflict {
			h.report.answered(kind)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (h hostile) createLarge(ctx context.Context, n int) {
	h.store(ctx, "large", fmt.Sprintf("large-%d", n), "x", strings.Repeat(fmt.Sprintf("%06d", n), 166_000))
}

func (h hostile) createSmall(ctx context.Context, n int) {
	h.store(ctx, "small", fmt.Sprintf("small-%d", n), fmt.Sprintf("k%d", n), "x")
}

// createService has a policy read all params in the namespace.
func (h hostile) createService(ctx context.Context, _ int) {
	code, _ := h.attempt(ctx, http.MethodPost, "api/v1", "services?dryRun=All", `{"metadata":{"name":"svc"},"spec":{"ports":[{"port":80}]}}`)
	if code != 0 {
		h.report.answered("creates")
	}
}

// createCostly sends what takes long to decode and to match, in turn as one value and
// as many.
func (h hostile) createCostly(ctx context.Context, n int) {
	data := fmt.Sprintf(`"x":%q`, strings.Repeat("a", 900_000)+"!")
	if n%2 == 1 {
		var many strings.Builder
		for i := 0; many.Len() < 900_000; i++ {
			fmt.Fprintf(&many, `"k%d":"aaaaaaaaaaaaaaaa!",`, i)
		}
		data = strings.TrimSuffix(many.String(), ",")
	}
	body := `{"metadata":{"name":"costly"},"data":{` + data + `}}`
	if code, _ := h.attempt(ctx, http.MethodPost, "api/v1", "configmaps?dryRun=All", body); code != 0 {
		h.report.answered("costly")
	}
}

// takeTwoSteps creates an object that a policy does not match, and then changes it so
// that the policy matches it and has to deny it: by a match condition, a binding or an
// object selector. It also tries from a label of another policy.
func (h hostile) takeTwoSteps(ctx context.Context, n int) {
	by := []string{"condition", "binding", "selector"}
	tier, earlier := by[n%3], `{}`
	if n/3%2 == 1 {
		earlier = `{"tier":"none"}`
	}
	name := fmt.Sprintf("step-%d-%t", n, h.Enforced)
	object := fmt.Sprintf(`{"metadata":{"name":%q,"labels":%s},"data":{"danger":"x"}}`, name, earlier)
	if code, _ := h.attempt(ctx, http.MethodPost, "api/v1", "configmaps", object); code != http.StatusCreated {
		return
	}
	code, text := h.attempt(ctx, http.MethodPatch, "api/v1", "configmaps/"+name, fmt.Sprintf(`{"metadata":{"labels":{"tier":%q}}}`, tier))
	if code != 0 {
		h.report.answered("steps")
	}
	if h.Enforced {
		h.report.countWitness()
		if code == http.StatusOK {
			h.report.wrong("a change by which a policy matches an object that it denies, with its %s, is answered with %d %.200s", tier, code, text)
		}
	}
	h.attempt(ctx, http.MethodDelete, "api/v1", "configmaps/"+name, "")
}
