package lookups

import (
	"fmt"

	"github.com/ostiary/ostiary/internal/truncate"
)

// maxExample is the number of bytes of the error of an object in a message.
const maxExample = 256

// Changes are changes of an index that requests see together.
type Changes struct{ index *Index }

// Put adds or replaces an object. If a limit does not permit the object, the index is incomplete until a later list ends:
// for requests of the namespace, or for all requests.
func (c *Changes) Put(ref Ref, e Entry) {
	if len(e.Keys) == 0 {
		c.Remove(ref.UID)
		return
	}
	c.index.put(newObject(ref, e), "")
}

// Fail adds or replaces an object whose keys or value are not known.
func (c *Changes) Fail(ref Ref, err error) {
	example := ref.Name
	if ref.Namespace != "" {
		example = ref.Namespace + "/" + ref.Name
	}
	c.index.put(newObject(ref, Entry{}), example+": "+truncate.String(err.Error(), maxExample))
}

// Remove removes an object that has been deleted.
func (c *Changes) Remove(uid string) {
	if o := c.index.objects[uidOf(uid)]; o != nil {
		c.index.remove(o)
	}
}

// BeginList begins a list of all objects. The objects from before remain until it ends.
func (c *Changes) BeginList() { c.index.list++ }

// EndList ends a list: objects that it did not contain are removed. The index is complete if every object since the begin
// of the list was within the limits.
func (c *Changes) EndList() {
	x := c.index
	for _, o := range x.objects {
		if o.list != x.list {
			x.remove(o)
		}
	}
	for name, n := range x.namespaces {
		if n.over.reason != "" && n.over.list != x.list {
			n.over, x.changed, x.faulty = fault{}, true, true
			x.forget(name, n)
		}
	}
	if x.full.reason != "" && x.full.list != x.list {
		x.full, x.changed = fault{}, true
	}
}

// put keeps an object, with an example of a failure if it has no keys.
func (x *Index) put(o *object, example string) {
	o.list = x.list
	if old := x.objects[o.uid]; old != nil {
		if old.equal(o) {
			old.list = x.list
			return
		}
		x.remove(old)
	}
	name := o.namespaceText()
	n := x.namespace(name)
	if x.isReleased(n) || !x.fits(o, n) {
		x.forget(name, n)
		return
	}
	x.objects[o.uid] = o
	x.count(n, o, 1)
	for _, key := range o.keys {
		x.pairs.ReplaceOrInsert(pair{key, o})
	}
	if o.failed() && n.failed == 1 {
		n.example, x.faulty = example, true
	}
}

// fits reports whether the limits permit an object, and otherwise records why the index is incomplete.
func (x *Index) fits(o *object, n *namespace) bool {
	pairs, name := int64(max(len(o.keys), 1)), o.namespaceText()
	l := x.limits
	switch {
	case l.Pairs > 0 && int64(x.pairs.Len())+pairs > l.Pairs:
		x.full = fault{fmt.Sprintf("it has more than %d keys of objects", l.Pairs), x.list}
	case l.NamespacePairs > 0 && name != "" && n.pairs+pairs > l.NamespacePairs:
		x.release(name, fmt.Sprintf("the objects in namespace %q have more than %d keys", name, l.NamespacePairs))
	default:
		return true
	}
	x.changed, x.faulty = true, true
	return false
}

// namespace returns what objects of a namespace use.
func (x *Index) namespace(name string) *namespace {
	n := x.namespaces[name]
	if n == nil {
		n = &namespace{}
		x.namespaces[name] = n
	}
	return n
}

func (x *Index) remove(o *object) {
	delete(x.objects, o.uid)
	for _, key := range o.keys {
		x.pairs.Delete(pair{key, o})
	}
	name := o.namespaceText()
	n := x.namespaces[name]
	x.count(n, o, -1)
	x.faulty = x.faulty || o.failed() && n.failed == 0
	x.forget(name, n)
}

// count adds an object to the counters, or removes it.
func (x *Index) count(n *namespace, o *object, sign int64) {
	pairs, bytes := sign*int64(max(len(o.keys), 1)), sign*o.bytes()
	n.pairs += pairs
	n.bytes += bytes
	x.bytes += bytes
	if o.failed() {
		n.failed += sign
	}
	x.changed = true
}

// forget removes a namespace without objects.
func (x *Index) forget(name string, n *namespace) {
	if *n == (namespace{example: n.example}) {
		delete(x.namespaces, name)
	}
}
