package event

import (
	"fmt"
	"slices"
	"strings"

	"hubn/registry/client"
)

// maxRounds is how often sources that changed during a scan are read again
// before the scan is given up.
const maxRounds = 5

// listing is which sources there are, in which version.
type listing map[client.Resource]int64

// disagreement answers the sources that two passes do not agree on, and those
// that the Registry says changed between them, in order.
func disagreement(first, second listing, changed []client.Resource) []client.Resource {
	differ := map[client.Resource]bool{}
	for r, version := range first {
		if second[r] != version {
			differ[r] = true
		}
	}
	for r := range second {
		if _, ok := first[r]; !ok {
			differ[r] = true
		}
	}
	for _, r := range changed {
		differ[r] = true
	}
	out := make([]client.Resource, 0, len(differ))
	for r := range differ {
		out = append(out, r)
	}
	slices.SortFunc(out, compareResources)
	return out
}

// compareResources orders by kind and key, by bytes, as the stores do.
func compareResources(a, b client.Resource) int {
	if n := strings.Compare(string(a.Kind), string(b.Kind)); n != 0 {
		return n
	}
	return strings.Compare(a.Key, b.Key)
}

// limit is how many sources one run may withdraw without an operator: five, or
// 5 % of what is published.
func limit(published int) int { return max(5, published*5/100) }

// ruling is what becomes of sources that are proven absent, though no tombstone
// says so.
type ruling struct {
	withdraw []Row
	// hold are those of a new held withdrawal; reason says why it is held.
	hold   []Row
	reason string
	// release are held sources that are there after all.
	release []client.Resource
}

// rule decides over the absent sources of one complete scan. Those that an
// operator approved are withdrawn; those that are held stay so; the rest is
// withdrawn unless it is too much. Held ones count with the rest, so that a
// large loss does not pass in small pieces behind a held one.
func rule(absent []Row, sets []HeldSet, published int) ruling {
	decisions := map[client.Resource]Decision{}
	for _, set := range sets {
		for _, r := range set.Resources {
			decisions[r] = set.Decision
		}
	}
	var r ruling
	var fresh []Row
	waiting := 0
	isAbsent := make(map[client.Resource]bool, len(absent))
	for _, row := range absent {
		isAbsent[row.Resource] = true
		switch decisions[row.Resource] {
		case Approved:
			r.withdraw = append(r.withdraw, row)
		case Waiting:
			waiting++
		case Rejected:
		default:
			fresh = append(fresh, row)
		}
	}
	for resource := range decisions {
		if !isAbsent[resource] {
			r.release = append(r.release, resource)
		}
	}
	slices.SortFunc(r.release, compareResources)
	switch total := len(fresh) + waiting; {
	case len(fresh) == 0:
	case total > limit(published):
		r.hold = fresh
		r.reason = fmt.Sprintf("a scan did not find %d of %d sources, more than the %d that one run may withdraw", total, published, limit(published))
	case total >= published:
		r.hold = fresh
		r.reason = fmt.Sprintf("a scan found none of the %d sources", published)
	default:
		r.withdraw = append(r.withdraw, fresh...)
	}
	return r
}

// stance is how a store stands to the lineage that the Registry serves.
type stance int

const (
	// sameLineage: versions compare.
	sameLineage stance = iota
	// firstLineage: the store has none yet.
	firstLineage
	// newLineage: the store's lineage is an ancestor, or an operator allowed it.
	newLineage
	// foreignLineage: nothing of it may be applied.
	foreignLineage
)

// stand compares the store's lineage with the one that is served. It follows the
// parents itself, so that a list of lineages which is no line of descent proves
// nothing.
func stand(own, allowed string, served client.Lineages) stance {
	switch {
	case own == "":
		return firstLineage
	case own == served.Lineage:
		return sameLineage
	case slices.Contains(ancestors(served), own), served.Lineage == allowed:
		return newLineage
	default:
		return foreignLineage
	}
}

// ancestors are the lineages that the served one came from, nearest first.
func ancestors(served client.Lineages) []string {
	parents := make(map[string]string, len(served.Ancestry))
	for _, l := range served.Ancestry {
		parents[l.ID] = l.Parent
	}
	var out []string
	for at := parents[served.Lineage]; at != "" && !slices.Contains(out, at); at = parents[at] {
		out = append(out, at)
	}
	return out
}
