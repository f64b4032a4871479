package registration

import (
	"bytes"
	"crypto/sha256"
	"math/big"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	// MaxMembers is how many policies one call group holds.
	MaxMembers = 500

	// maxGroupSize keeps a configuration well below the 1.5 MiB that etcd
	// accepts, together with its members and owner references.
	maxGroupSize = 512 << 10

	resourceBits = 16
	nameBits     = 48
	hashBits     = resourceBits + nameBits

	// maxSplits is how often a group can be divided between names. After
	// chanceCuts each further one halves it, so that 65,536 policies fit
	// wherever the cuts before have fallen.
	maxSplits  = 30
	hashSplits = 14
)

// hash is a fixed string of bits that says where a policy goes when its
// group has to be divided: a hash of the resources that it names, then a hash
// of its name.
type bucketHash [hashBits / 8]byte

func newBucketHash(resources, name string) bucketHash {
	r, n := sha256.Sum256([]byte(resources)), sha256.Sum256([]byte(name))
	var a bucketHash
	copy(a[copy(a[:], r[:resourceBits/8]):], n[:])
	return a
}

func (a bucketHash) bit(i int) byte { return a[i/8] >> (7 - i%8) & 1 }

// resourceSignature names the resources of rules, without API groups and
// subresources. Policies for any resource have a signature of their own, so
// that they do not make every part of a divided group see every request.
func resourceSignature(rules []admissionregistrationv1.RuleWithOperations) string {
	var names []string
	for i := range rules {
		for _, r := range rules[i].Resources {
			name, _, _ := strings.Cut(r, "/")
			if name == wildcard {
				return wildcard
			}
			names = append(names, name)
		}
	}
	return strings.Join(sortedSet(names), ",")
}

// nameHash is the part of an address that depends on the policy's name.
func (a bucketHash) nameHash() []byte { return a[resourceBits/8:] }

// memberSet is a call group in the making: policies with equal settings. prefix
// says, in binary digits, which of those that share the settings.
type memberSet struct {
	prefix  string
	members []*membership
}

// divide splits policies with equal settings, sorted by name, into buckets that
// are small enough.
func divide(members []*membership) []memberSet {
	if members[0].settings.Phase == PhaseMutate {
		return memberSet{members: members}.divideByName(nil)
	}
	return memberSet{members: members}.divideByHash(nil)
}

// divideByHash divides a bucket that is too large by the next bit of its
// policies' addresses, so policies for the same resources stay together as long
// as they can, and a request meets few groups.
//
// A policy's bucket depends on its address and on how many policies there are
// near it, never on the rest: adding or removing one changes one bucket. It
// renames others only where a bucket crosses the limit and becomes two, or two
// become one again. The new ones are then in force before the old ones go (see
// Diff).
func (b memberSet) divideByHash(out []memberSet) []memberSet {
	if b.fits() || len(b.prefix) == hashBits {
		return append(out, b)
	}
	halves := [2]memberSet{{prefix: b.prefix + "0"}, {prefix: b.prefix + "1"}}
	for _, m := range b.members {
		half := &halves[m.hash.bit(len(b.prefix))]
		half.members = append(half.members, m)
	}
	for _, half := range halves {
		if len(half.members) > 0 {
			out = half.divideByHash(out)
		}
	}
	return out
}

// divideByName divides a bucket that is too large between two names. Each part
// holds consecutive names and sorts by its prefix, so mutations of one group
// are applied in the order of the policies' names however it is divided. A
// request can meet every part.
//
// The second part begins with the policy whose name has the lowest hash. Which
// one that is does not change with most policies that are added or removed: as
// with divideByAddress they change one bucket. Only the one in so many that is
// such a beginning, or becomes one, has what it divides divided anew.
func (b memberSet) divideByName(out []memberSet) []memberSet {
	if b.fits() || len(b.prefix) == maxSplits {
		return append(out, b)
	}
	at := b.splitIndex()
	out = memberSet{prefix: b.prefix + "0", members: b.members[:at]}.divideByName(out)
	return memberSet{prefix: b.prefix + "1", members: b.members[at:]}.divideByName(out)
}

// splitIndex is where the second part begins. Neither part is empty.
func (b memberSet) splitIndex() int {
	if len(b.prefix) >= hashSplits {
		return len(b.members) / 2
	}
	at := 1
	for i := 2; i < len(b.members); i++ {
		if bytes.Compare(b.members[i].hash.nameHash(), b.members[at].hash.nameHash()) < 0 {
			at = i
		}
	}
	return at
}

func (b memberSet) fits() bool {
	size := 0
	for _, m := range b.members {
		size += m.size
	}
	return len(b.members) == 1 || len(b.members) <= MaxMembers && size <= maxGroupSize
}

// name is the settings' name. Where their policies are divided, the prefix
// follows: in the mutating phase as it is, since its names have to sort, else in
// hexadecimal, with a 1 in front that keeps leading zeros apart. The longest
// forms, 1000-ignore-30s-<16 digits>-<30 digits> and
// ignore-30s-<16 digits>-<17 digits>, are DNS labels.
func (b memberSet) name() string {
	name := b.members[0].groupName
	switch {
	case b.prefix == "":
		return name
	case b.members[0].settings.Phase == PhaseMutate:
		return name + "-" + b.prefix
	}
	bits, _ := new(big.Int).SetString("1"+b.prefix, 2)
	return name + "-" + bits.Text(16)
}

func (b memberSet) rules() []admissionregistrationv1.RuleWithOperations {
	if ordered := b.members[0].ordered; ordered != nil {
		out := make([]admissionregistrationv1.RuleWithOperations, len(ordered))
		for i := range ordered {
			ordered[i].DeepCopyInto(&out[i])
		}
		return out
	}
	lists := make([][]ruleUnit, len(b.members))
	for i, m := range b.members {
		lists[i] = m.units
	}
	return union(lists...)
}
