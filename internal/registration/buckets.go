package registration

import (
	"bytes"
	"crypto/sha256"
	"math/big"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	// MaxMembers is the maximum number of policies in a call group.
	MaxMembers = 500

	// maxGroupSize is in bytes. With its members and owner references, a
	// configuration stays well below the 1.5 MiB that etcd accepts.
	maxGroupSize = 512 << 10

	resourceBits = 16
	nameBits     = 48
	hashBits     = resourceBits + nameBits

	// maxSplits is the maximum number of nested divisions by name. Divisions after
	// the first hashSplits halve the group, so that 65,536 policies fit however
	// unequal the parts of the first ones are.
	maxSplits  = 30
	hashSplits = 14
)

// bucketHash selects the part that contains a policy if its group is divided: a
// hash of the resources in its rules, then a hash of its name.
type bucketHash [hashBits / 8]byte

func newBucketHash(resources, name string) bucketHash {
	r, n := sha256.Sum256([]byte(resources)), sha256.Sum256([]byte(name))
	var h bucketHash
	copy(h[copy(h[:], r[:resourceBits/8]):], n[:])
	return h
}

func (h bucketHash) bit(i int) byte { return h[i/8] >> (7 - i%8) & 1 }

// resourceSignature returns the resources of rules, without API groups and
// subresources. Policies for all resources have a separate signature, so that not
// every part of a divided group receives every request.
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

// nameHash returns the part of the hash that depends on the policy's name.
func (h bucketHash) nameHash() []byte { return h[resourceBits/8:] }

// memberSet is a set of policies with equal settings, from which a call group is
// made. prefix identifies the part of a divided set, in binary digits.
type memberSet struct {
	prefix  string
	members []*membership
}

// divide divides policies with equal settings, sorted by name, into sets of limited
// size.
func divide(members []*membership) []memberSet {
	if members[0].phase == PhaseMutate {
		return memberSet{members: members}.divideByName(nil)
	}
	return memberSet{members: members}.divideByHash(nil)
}

// divideByHash divides a set that is too large by the next bit of its policies'
// hashes. Policies for the same resources stay together as far as possible, so that
// a request matches few groups.
//
// The set of a policy depends on its hash and on the number of policies with similar
// hashes: adding or removing a policy changes one set. Sets get other names only if
// one grows beyond the limit and is divided, or if two are joined again. The new
// configurations are written before the old ones are deleted (see Diff).
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

// divideByName divides a set that is too large between two names. Each part
// contains consecutive names and sorts by its prefix, so mutations are applied in
// the order of the policies' names. A request can match every part.
//
// The second part begins with the policy whose name has the lowest hash. Adding or
// removing most policies does not change this policy, and therefore changes one
// set, as in divideByHash. If it does, the set is divided at another name.
func (b memberSet) divideByName(out []memberSet) []memberSet {
	if b.fits() || len(b.prefix) == maxSplits {
		return append(out, b)
	}
	at := b.splitIndex()
	out = memberSet{prefix: b.prefix + "0", members: b.members[:at]}.divideByName(out)
	return memberSet{prefix: b.prefix + "1", members: b.members[at:]}.divideByName(out)
}

// splitIndex returns the index at which the second part begins. No part is empty.
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

// name returns the group's name: the name of the settings and, in a divided group,
// the prefix. The prefix is in binary in the mutating phase, so that names sort,
// and otherwise in hexadecimal, after a digit 1 that preserves leading zeros. The
// longest forms, 1000-ignore-30s-<16 digits>-<30 digits> and
// ignore-30s-<16 digits>-<17 digits>, are DNS labels.
func (b memberSet) name() string {
	name := b.members[0].groupName()
	switch {
	case b.prefix == "":
		return name
	case b.members[0].phase == PhaseMutate:
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
