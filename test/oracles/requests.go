package oracles

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
)

// Requests makes requests about objects of some kinds.
type Requests struct {
	APIs *offline.APIs
	// Objects are those that requests are made of, by kind.
	Objects map[string][]object
}

// Make returns requests about objects of some kinds.
func (r *Requests) Make(a *Author, kinds []string, number int) (out []*admissionv1.AdmissionRequest, err error) {
	var known []object
	for _, kind := range kinds {
		known = append(known, r.Objects[kind]...)
	}
	if len(known) == 0 {
		return nil, nil
	}
	for range number {
		o := a.Edit(a.placed(pick(a, known...)), a.IntN(6))
		made, err := r.request(a, o)
		if err != nil {
			return nil, err
		}
		out = append(out, made)
	}
	return out, nil
}

// About returns requests about a written policy: about its examples, about the objects of its
// kinds without each of their fields in turn, and random ones.
func (r *Requests) About(a *Author, c *Case) ([]*admissionv1.AdmissionRequest, error) {
	out, err := r.Make(a, c.Kinds, 60)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, o := range r.examples(c) {
		served := asServed(o)
		if served == nil || seen[string(served.Raw)] {
			continue
		}
		seen[string(served.Raw)] = true
		asked := []struct{ object, old *load.Object }{{served, nil}, {served, served}, {nil, served}}
		if len(seen)%4 != 1 { // an operation seldom changes what a field means
			asked = asked[:1]
		}
		for _, ask := range asked {
			made, err := r.APIs.NewRequest(ask.object, ask.old, offline.RequestOptions{})
			if err != nil {
				return nil, fmt.Errorf("making a request: %w", err)
			}
			out = append(out, made)
		}
	}
	return out, nil
}

// examples returns the objects of a case, and one object of each of its kinds, as it is and
// without each field in turn.
func (r *Requests) examples(c *Case) []object {
	out := slices.Clone(c.Examples)
	for _, e := range c.Examples {
		out = append(out, AbsentInTurn(e)...)
	}
	for _, kind := range c.Kinds {
		if known := r.Objects[kind]; len(known) > 0 {
			out = append(out, known[0])
			out = append(out, AbsentInTurn(known[0])...)
		}
	}
	return out
}

// placed returns an object in one of some namespaces.
func (a *Author) placed(o object) object {
	if valueAt(o, path{"metadata", "namespace"}) == nil || a.chance(2) {
		return o
	}
	return asObject(with(o, path{"metadata", "namespace"}, pick(a, "default", "shop", "prod", "prod-1", "dev")))
}

// request returns a request about an object.
func (r *Requests) request(a *Author, o object) (*admissionv1.AdmissionRequest, error) {
	subject := asServed(o)
	if subject == nil {
		return nil, fmt.Errorf("no API server accepts %v", o)
	}
	var old *load.Object
	switch a.IntN(6) {
	case 0:
		old = subject
		subject = nil
	case 1, 2:
		old = asServed(a.Edit(o, a.IntN(3)))
	}
	user := authenticationv1.UserInfo{Username: pick(a, "developer", "alice", "system:serviceaccount:shop:web")}
	if a.chance(4) {
		user.Groups = []string{pick(a, "admins", "developers", "system:masters")}
	}
	made, err := r.APIs.NewRequest(subject, old, offline.RequestOptions{User: user})
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	return made, nil
}
