package backends

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/secrets"
	"github.com/ostiary/ostiary/internal/pki"
	"github.com/ostiary/ostiary/internal/truncate"
)

// Reasons of the condition CAReady and of its events.
const (
	// ReasonCARead means that the CA bundle was read from its source.
	ReasonCARead = "Read"
	// ReasonCAReading means that the source has not been read yet.
	ReasonCAReading = "Pending"
	// ReasonCANotFound means that the object or its key does not exist.
	ReasonCANotFound = "NotFound"
	// ReasonCAForbidden means that Ostiary may not read or write the object.
	ReasonCAForbidden = "Forbidden"
	// ReasonCARefused means that the content of the source is not a CA bundle.
	ReasonCARefused = "Refused"
	// ReasonCAFailed means that the API server returns an error.
	ReasonCAFailed = "Failed"
)

// trust is a CA bundle, or why there is none.
type trust struct {
	bundle  []byte
	reason  string
	message string
}

func (t trust) ok() bool { return t.reason == ReasonCARead }

// checkedTrust is the last result of checking a source.
type checkedTrust struct {
	data  []byte
	until time.Time
	trust trust
}

// check returns whether data is a CA bundle. Unchanged data is checked again after
// an interval, because certificates expire.
func (j *checkedTrust) check(data []byte, from string, now time.Time) trust {
	if j.data != nil && bytes.Equal(j.data, data) && now.Before(j.until) {
		return j.trust
	}
	bundle, err := pki.ExternalBundle(data, now)
	t := trust{bundle: bundle, reason: ReasonCARead, message: "the CA bundle is read from " + from}
	if err != nil {
		t = trust{reason: ReasonCARefused, message: fmt.Sprintf("%s is not a CA bundle: %v", from, err)}
	}
	*j = checkedTrust{data: bytes.Clone(data), until: now.Add(recheckInterval), trust: t}
	return t
}

// recheckInterval is how often unchanged data is checked.
const recheckInterval = 30 * time.Second

// source is the key of an object with a CA bundle.
type source struct {
	object secrets.Object
	key    string
}

// sourceOf returns nil for a backend without caFrom.
func sourceOf(b *v1alpha1.Backend) *source {
	switch {
	case b.CAFrom == nil:
		return nil
	case b.CAFrom.Secret != nil:
		k := b.CAFrom.Secret
		return &source{secrets.Object{Kind: secrets.KindSecret, Namespace: k.Namespace, Name: k.Name}, k.Key}
	case b.CAFrom.ConfigMap != nil:
		k := b.CAFrom.ConfigMap
		return &source{secrets.Object{Kind: secrets.KindConfigMap, Namespace: k.Namespace, Name: k.Name}, k.Key}
	}
	return nil
}

func (s *source) String() string { return s.object.String() + ", key " + s.key }

// read returns the content of the source.
func (s *source) read(w *watch, account string) (data []byte, problem trust) {
	if w == nil {
		return nil, trust{reason: ReasonCAReading, message: "waiting for " + s.object.String()}
	}
	if err := w.Problem(); err != nil {
		return nil, refusal(err, s.object, account, "read", "get, list, watch")
	}
	content, known := w.Data()
	if !known {
		return nil, trust{reason: ReasonCAReading, message: s.object.String() + " is being read"}
	}
	if content == nil {
		return nil, trust{reason: ReasonCANotFound, message: s.object.String() + " does not exist"}
	}
	data, found := content[s.key]
	if !found {
		return nil, trust{reason: ReasonCANotFound, message: fmt.Sprintf("%s has no key %s", s.object, s.key)}
	}
	return data, trust{}
}

// refusal returns why an object is not usable, with the missing RBAC rule.
func refusal(err error, o secrets.Object, account, what, verbs string) trust {
	var tooLarge *secrets.TooLargeError
	if errors.Is(err, errNotOwned) || errors.As(err, &tooLarge) {
		return trust{reason: ReasonCARefused, message: fmt.Sprintf("%s: %v", o, err)}
	}
	if !apierrors.IsForbidden(err) {
		return trust{reason: ReasonCAFailed, message: fmt.Sprintf("%s: %s", o, truncate.String(err.Error(), maxProblem))}
	}
	return trust{reason: ReasonCAForbidden, message: fmt.Sprintf(
		`Ostiary may not %s %s: create a Role in namespace %s with the rule {apiGroups: [""], resources: [%s], resourceNames: [%s], verbs: [%s]}, and bind it to the ServiceAccount %s`,
		what, o, o.Namespace, strings.ToLower(o.Kind)+"s", o.Name, verbs, account)}
}

const maxProblem = 1 << 10 // bytes of an error of others
