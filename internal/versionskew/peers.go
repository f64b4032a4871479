package versionskew

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Report is what a replica reports about its version. It is comparable.
type Report struct {
	// Loaded has the changes that the replica has loaded.
	Loaded Vector
	// Known are the fields of policies that the replica knows, as Fields.String returns them. It
	// is empty if the replica does not report them.
	Known string
	// Withheld are the paths of fields, separated by commas. The replica knows them, but still
	// answers with the previous generation of the policies that use them, because it has seen a
	// replica that does not.
	Withheld string
	// Unloaded are the exceptions, separated by commas, that the replica does not apply, because they
	// have fields that it does not know. It ends with moreUnloaded if there are more.
	Unloaded string
	// Unready are the lookups of loaded policies, in the same form, that the replica cannot use.
	Unready string
}

// maxNames limits Unloaded and Unready in bytes, without moreNames, which is the name of nothing.
const (
	maxNames  = 4 << 10
	moreNames = "..."
)

// SetUnloaded sets Unloaded.
func (r *Report) SetUnloaded(exceptions []string) { r.Unloaded = joinNames(exceptions) }

// SetUnready sets Unready.
func (r *Report) SetUnready(lookups []string) { r.Unready = joinNames(lookups) }

func joinNames(names []string) string {
	slices.Sort(names)
	out := strings.Join(names, ",")
	if len(out) > maxNames {
		end := strings.LastIndexByte(out[:maxNames], ',')
		out = out[:end+1] + moreNames
	}
	return out
}

// hasName reports whether a list of joinNames has a name, or may have it.
func hasName(list, name string) bool {
	if list == "" {
		return false
	}
	names := strings.Split(list, ",")
	return slices.Contains(names, name) || slices.Contains(names, moreNames)
}

// Requirement is what a replica needs in order to answer for a generation of a policy.
type Requirement struct {
	Loaded Vector
	Spec   *v1alpha1.WebhookPolicySpec
}

// Peer is another replica.
type Peer struct {
	Name string
	Report
}

// Peers are the other replicas, with what they know in comparison with this one.
type Peers struct{ peers []comparedPeer }

type comparedPeer struct {
	Peer
	knowsAll bool   // what this replica knows
	known    Fields // unless it knows all
	answers  Fields // known without withheld ones, unless it withholds none
}

// NewPeers compares other replicas with the fields that this one knows. If a report cannot be
// read, the replica counts as one that knows nothing.
func NewPeers(own Version, peers []Peer) Peers {
	out := Peers{peers: make([]comparedPeer, len(peers))}
	for i, p := range peers {
		compared := comparedPeer{Peer: p, known: own.Fields}
		if compared.knowsAll = p.Known == own.Text; !compared.knowsAll {
			known, err := ParseFields(p.Known)
			if err != nil {
				known = nil
			}
			compared.known = known
		}
		if p.Withheld != "" {
			compared.answers = compared.known.without(strings.Split(p.Withheld, ","))
		}
		out.peers[i] = compared
	}
	return out
}

// Unknown returns the fields that a policy sets and that a replica does not know, and says which
// replica that is. It returns nothing if all know them.
func (p Peers) Unknown(spec *v1alpha1.WebhookPolicySpec) (fields []string, why string) {
	for i := range p.peers {
		if fields := p.peers[i].unknown(spec); len(fields) > 0 {
			return fields, waitingFor(p.peers[i].Name, p.peers[i].doesNotKnow(fields))
		}
	}
	return nil, ""
}

// UnknownHere says that this replica does not know fields.
func UnknownHere(fields []string) string {
	return "waiting for an upgrade of the replica that leads, which " + doesNotKnow(fields)
}

func (p *comparedPeer) unknown(spec *v1alpha1.WebhookPolicySpec) []string {
	if p.knowsAll {
		return nil // there can be thousands of policies
	}
	return p.known.Unknown(spec)
}

// Missing says which replica the requirement waits for, and why; "" if all replicas answer.
func (p Peers) Missing(q Requirement) string {
	for i := range p.peers {
		if why := p.peers[i].lacks(q); why != "" {
			return waitingFor(p.peers[i].Name, why)
		}
	}
	return ""
}

// MissingException says which replica does not apply an exception that was loaded with a version,
// and why; "" if all replicas apply it.
func (p Peers) MissingException(name string, loaded Vector) string {
	for i := range p.peers {
		peer := &p.peers[i]
		if !peer.Loaded.Reached(loaded) {
			return waitingFor(peer.Name, "has not loaded it yet")
		}
		if hasName(peer.Unloaded, name) {
			return waitingFor(peer.Name, "does not know its fields")
		}
	}
	return ""
}

// MissingLookup says which replica that has loaded the policy cannot use a lookup; "" if all can.
func (p Peers) MissingLookup(name string) string {
	for i := range p.peers {
		if hasName(p.peers[i].Unready, name) {
			return waitingFor(p.peers[i].Name, "cannot use it yet")
		}
	}
	return ""
}

func (p *comparedPeer) lacks(q Requirement) string {
	if fields := p.unknown(q.Spec); len(fields) > 0 {
		return p.doesNotKnow(fields)
	}
	if !p.Loaded.Reached(q.Loaded) || p.answers != nil && len(p.answers.Unknown(q.Spec)) > 0 {
		return "has not loaded it yet"
	}
	return ""
}

// Known returns the different sets of fields that the replicas know. It changes only when a
// replica of another version starts or ends.
func (p Peers) Known() string {
	var out []string
	for i := range p.peers {
		if !p.peers[i].knowsAll {
			out = append(out, p.peers[i].Name+" "+p.peers[i].Peer.Known)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func waitingFor(replica, why string) string {
	return "waiting for replica " + replica + ", which " + why
}

func (p *comparedPeer) doesNotKnow(fields []string) string {
	if p.Known == "" {
		return "is too old to report the fields that it knows"
	}
	return doesNotKnow(fields)
}

// maxNamed is the number of fields that a message names.
const maxNamed = 3

// doesNotKnow returns the part of a message about a replica and the fields that it does not know.
func doesNotKnow(fields []string) string {
	if len(fields) > maxNamed {
		return fmt.Sprintf("does not know %s and %d other fields", strings.Join(fields[:maxNamed], ", "), len(fields)-maxNamed)
	}
	return "does not know " + strings.Join(fields, ", ")
}
