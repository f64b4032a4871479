package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// order finds mutating webhooks that do not see what later ones change. The order within
// a configuration, and among those of Ostiary, is chosen by their authors.
func (c *checker) order() {
	for i, w := range c.webhooks {
		if !w.mutating || w.reinvoked() || w.isCanary() {
			continue
		}
		var later, resources []string
		for _, other := range c.webhooks[i+1:] {
			if !other.mutating || other.isCanary() || other.configuration == w.configuration ||
				w.ofOstiary() && other.ofOstiary() {
				continue
			}
			if resource := c.shared(w, other); resource != "" {
				later, resources = append(later, other.String()), append(resources, resource)
			}
		}
		if len(later) > 0 {
			slices.Sort(resources)
			c.about(w, Warning, "order-dependent", "reinvocationPolicy",
				fmt.Sprintf("it does not see what later webhooks change in %s: %s", output.Some(slices.Compact(resources)), output.Some(later)),
				"set reinvocationPolicy: IfNeeded if it must see these changes; configurations are called in the order of their names")
		}
	}
}

// requestLimit is the time in seconds after which API servers abort a request that writes,
// however long its client waits.
const requestLimit = 34

// chain is a set of webhooks that API servers call for one request.
type chain struct {
	mutating   []*webhook // called one after the other
	validating []*webhook // called at the same time
}

// seconds returns the longest time that the calls can take.
func (s chain) seconds() int {
	total, longest := 0, int32(0)
	for _, w := range s.mutating {
		total += int(w.timeoutSeconds())
	}
	for _, w := range s.validating {
		longest = max(longest, w.timeoutSeconds())
	}
	return total + int(longest)
}

func (s chain) names() []string {
	var out []string
	for _, w := range s.mutating {
		out = append(out, fmt.Sprintf("%s (%d s)", w, w.timeoutSeconds()))
	}
	return out
}

// timeouts finds mutating webhooks that together can take longer than a request may.
// Then requests fail although every failurePolicy is Ignore.
func (c *checker) timeouts() {
	found := map[string][]string{} // resources by webhooks
	chains := map[string]chain{}
	for _, resource := range c.mutatedResources() {
		s := c.chain(resource)
		if len(s.mutating) < 2 || s.seconds() <= requestLimit {
			continue
		}
		key := strings.Join(s.names(), "\n")
		found[key], chains[key] = append(found[key], resource.String()), s
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		s := chains[key]
		c.about(s.mutating[0], Warning, "timeouts-exceed-request", "timeoutSeconds",
			fmt.Sprintf("the webhooks for %s can take %d seconds together, and API servers abort a request after %d, also if failurePolicy is Ignore: %s",
				output.Some(found[key]), s.seconds(), requestLimit, output.Some(s.names())),
			"reduce timeoutSeconds: most webhooks answer within one second")
	}
}

// pattern is a resource that a rule names, in an API group.
type pattern struct{ group, resource string }

// String returns resource or resource.group.
func (p pattern) String() string {
	if p.group == "" {
		return p.resource
	}
	return p.resource + "." + p.group
}

// mutatedResources returns the resources that rules of mutating webhooks name, sorted.
func (c *checker) mutatedResources() []pattern {
	seen := map[pattern]bool{}
	for _, w := range c.webhooks {
		if !w.mutating {
			continue
		}
		for _, rule := range w.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					seen[pattern{group, resource}] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b pattern) int { return strings.Compare(a.String(), b.String()) })
}

// chain returns the webhooks that one CREATE of a resource can call: none whose selectors
// exclude each other.
func (c *checker) chain(p pattern) chain {
	var out chain
	for _, w := range c.webhooks {
		if !w.matchesCreate(p) || w.isCanary() {
			continue
		}
		switch {
		case !w.mutating:
			out.validating = append(out.validating, w)
		case !slices.ContainsFunc(out.mutating, func(other *webhook) bool { return !c.sharedObjects(w, other) }):
			out.mutating = append(out.mutating, w)
		}
	}
	return out
}

func (w *webhook) matchesCreate(p pattern) bool {
	for _, rule := range w.Rules {
		if !hasOperation(rule.Operations, "CREATE") || !covers(rule.APIGroups, p.group) {
			continue
		}
		for _, resource := range rule.Resources {
			if commonResource(resource, p.resource) == p.resource {
				return true
			}
		}
	}
	return false
}

func covers(list []string, name string) bool {
	return slices.Contains(list, wildcard) || slices.Contains(list, name)
}
