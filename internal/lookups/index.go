package lookups

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Memory of an index above its strings: objectBytes for each object with its place by UID, and pairBytes for each key.
// Together they are at most 180 for a pair, which TestBytes measures.
const (
	objectBytes = 112
	pairBytes   = 64
)

// degree is that of the tree of pairs. A change copies a node of each level, of at most twice as many pairs.
const degree = 32

// Limits bound an index. Zero values have no limit.
type Limits struct {
	Pairs          int64 // of the index
	NamespacePairs int64 // of one namespace in it; objects without a namespace have no such limit
}

// uid identifies an object: the bytes of a UUID, or a hash of another UID.
type uid [16]byte

func uidOf(text string) (out uid) {
	digits := strings.ReplaceAll(text, "-", "")
	if len(text) == 36 && len(digits) == 2*len(out) {
		if _, err := hex.Decode(out[:], []byte(digits)); err == nil {
			return out
		}
	}
	sum := sha256.Sum256([]byte(text))
	copy(out[:], sum[:])
	return out
}

// object is what an index keeps of a stored object. It is immutable, except for the list.
type object struct {
	uid  uid
	text string // namespace, name and value
	keys []string

	namespace, name uint16 // lengths in text
	list            uint32 // the last list that contained it; only for writers
}

// maxName is far above the length of names in API servers, and fits the lengths in an object.
const maxName = 1 << 12

func newObject(ref Ref, e Entry) *object {
	namespace, name := ref.Namespace[:min(len(ref.Namespace), maxName)], ref.Name[:min(len(ref.Name), maxName)]
	return &object{
		uid: uidOf(ref.UID), text: strings.Clone(namespace + name + e.Value), keys: e.Keys,
		namespace: uint16(len(namespace)), name: uint16(len(name)), //nolint:gosec // at most maxName
	}
}

func (o *object) namespaceText() string { return o.text[:o.namespace] }
func (o *object) nameText() string      { return o.text[o.namespace:][:o.name] }

func (o *object) value() Value {
	return Value{Namespace: o.namespaceText(), Name: o.nameText(), JSON: o.text[int(o.namespace)+int(o.name):]}
}

// failed reports whether the keys or the value of the object are not known. Objects without keys are not kept.
func (o *object) failed() bool { return len(o.keys) == 0 }

func (o *object) bytes() int64 {
	n := objectBytes + len(o.text) + pairBytes*len(o.keys)
	for _, key := range o.keys {
		n += len(key)
	}
	return int64(n)
}

func (o *object) equal(other *object) bool {
	return o.text == other.text && o.namespace == other.namespace && o.name == other.name && slices.Equal(o.keys, other.keys)
}

// pair is a key with an object that has it.
type pair struct {
	key    string
	object *object
}

func compareObjects(a, b *object) int {
	if c := strings.Compare(a.namespaceText(), b.namespaceText()); c != 0 {
		return c
	}
	if c := strings.Compare(a.nameText(), b.nameText()); c != 0 {
		return c
	}
	return slices.Compare(a.uid[:], b.uid[:])
}

// byKey orders pairs so that those that a request reads are next to each other.
func byKey(scope v1alpha1.LookupScope) btree.LessFunc[pair] {
	if scope == v1alpha1.LookupScopeCluster {
		return func(a, b pair) bool {
			if c := strings.Compare(a.key, b.key); c != 0 {
				return c < 0
			}
			return compareObjects(a.object, b.object) < 0
		}
	}
	return func(a, b pair) bool {
		if c := strings.Compare(a.object.namespaceText(), b.object.namespaceText()); c != 0 {
			return c < 0
		}
		if c := strings.Compare(a.key, b.key); c != 0 {
			return c < 0
		}
		return compareObjects(a.object, b.object) < 0
	}
}

// Index finds the objects of a definition by keys. Reads take no lock. It is safe for concurrent use.
type Index struct {
	definition Definition
	limits     Limits

	mu         sync.Mutex
	objects    map[uid]*object
	pairs      *btree.BTree[pair]
	namespaces map[string]*namespace
	bytes      int64
	list       uint32 // the number of lists that began
	full       fault
	changed    bool // something that requests can read
	faulty     bool // what faults returns

	view atomic.Pointer[View]
}

// fault is why objects are left out since a list.
type fault struct {
	reason string // "" for none
	list   uint32
}

// namespace is what objects of one namespace use.
type namespace struct {
	pairs, bytes, failed int64
	example              string // of a failure
	over                 fault  // why none of its objects are kept
}

// Ref names a stored object.
type Ref struct{ UID, Namespace, Name string }

// NewIndex returns an index without objects.
func NewIndex(d Definition, l Limits) *Index {
	x := &Index{
		definition: d, limits: l,
		objects: map[uid]*object{}, pairs: btree.New(degree, byKey(d.Scope)), namespaces: map[string]*namespace{},
	}
	x.publish()
	return x
}

// Definition returns the definition of the index.
func (x *Index) Definition() Definition { return x.definition }

// View returns the current content, which does not change.
func (x *Index) View() *View { return x.view.Load() }

// Find finds objects in the current content.
func (x *Index) Find(q Query) (Result, error) { return x.View().Find(q) }

// Update makes changes, which requests see together.
func (x *Index) Update(change func(*Changes)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change(&Changes{x})
	if x.changed {
		x.publish()
	}
}

// Put adds or replaces an object.
func (x *Index) Put(ref Ref, e Entry) { x.Update(func(c *Changes) { c.Put(ref, e) }) }

// Fail adds or replaces an object whose keys or value are not known.
func (x *Index) Fail(ref Ref, err error) { x.Update(func(c *Changes) { c.Fail(ref, err) }) }

// Remove removes an object that has been deleted.
func (x *Index) Remove(uid string) { x.Update(func(c *Changes) { c.Remove(uid) }) }

// publish makes the content visible to requests.
func (x *Index) publish() {
	v := &View{definition: x.definition, pairs: x.pairs.Clone()}
	if last := x.view.Load(); last != nil {
		v.Revision, v.faults = last.Revision+1, last.faults
	}
	if x.faulty {
		v.faults = x.faults()
	}
	v.full = x.incomplete(v.faults)
	x.view.Store(v)
	x.changed, x.faulty = false, false
}

// faults returns why requests of namespaces have no result.
func (x *Index) faults() map[string]string {
	var out map[string]string
	for name, n := range x.namespaces {
		reason := n.over.reason
		if reason == "" && n.failed > 0 && x.definition.KeyErrors == v1alpha1.LookupKeyErrorsFail {
			reason = "an object has no keys: " + n.example
		}
		if reason == "" {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = reason
	}
	return out
}

// Stats returns what the index contains.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := Stats{Objects: int64(len(x.objects)), Pairs: int64(x.pairs.Len()), Bytes: x.bytes, Incomplete: x.full.reason}
	for name, n := range x.namespaces {
		s.LeftOut += n.failed
		if n.failed > 0 && (s.Example == "" || n.example < s.Example) {
			s.Example = n.example
		}
		if n.over.reason != "" && (s.Over == "" || name < s.OverNamespace) {
			s.Over, s.OverNamespace = n.over.reason, name
		}
	}
	s.Objects -= s.LeftOut
	return s
}

// Stats describe the content of an index.
type Stats struct {
	Objects, Pairs, Bytes int64 // objects have keys
	LeftOut               int64 // objects whose keys or value are not known
	Example               string
	// Incomplete is why no request has a result; "" if the index is complete.
	Incomplete string
	// Over is why objects of OverNamespace, and perhaps of others, are left out; "" if none are.
	Over, OverNamespace string
}
