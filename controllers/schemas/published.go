package schemas

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi"
)

// published keeps the list of the schemas that the API server publishes, as its client
// returned it last. The manager of schemas reads the list every refreshInterval, and logs an
// error each time that it is asked for a schema that is not in the list.
type published struct {
	openapi.Client
	paths atomic.Pointer[map[string]openapi.GroupVersion]
}

// Paths implements openapi.Client.
func (p *published) Paths() (map[string]openapi.GroupVersion, error) {
	paths, err := p.Client.Paths()
	if err == nil {
		p.paths.Store(&paths)
	}
	return paths, err
}

// has reports whether the list has the schemas of a group version. It has none before it
// has been read.
func (p *published) has(gv schema.GroupVersion) bool {
	paths := p.paths.Load()
	if paths == nil {
		return false
	}
	path := "apis/" + gv.String()
	if gv.Group == "" {
		path = "api/" + gv.Version
	}
	_, ok := (*paths)[path]
	return ok
}
