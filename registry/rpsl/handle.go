package rpsl

import (
	"slices"
	"strings"
)

// sameHandle: handles are names of RPSL, which know no case.
func sameHandle(a, b string) bool { return strings.EqualFold(a, b) }

// handles knows how each organisation's handle is spelt: as in the Registry, or
// as it was met first.
type handles struct {
	spelling map[string]string
	present  map[string]bool
}

func newHandles(organisations []Organisation) *handles {
	h := &handles{spelling: make(map[string]string, len(organisations)), present: make(map[string]bool, len(organisations))}
	for _, o := range organisations {
		key := strings.ToLower(o.Handle)
		h.spelling[key], h.present[key] = o.Handle, true
	}
	return h
}

// meet learns the spellings of the input, in its order.
func (h *handles) meet(objects []Object) {
	for _, object := range objects {
		switch o := object.(type) {
		case *Network:
			h.spell(o.Organisation)
		case *Route:
			h.spell(o.Organisation)
		case *AutNum:
			h.spell(o.Organisation)
		}
	}
}

// spell is the handle as it is spelt in the Registry, or was met first.
func (h *handles) spell(handle string) string {
	key := strings.ToLower(handle)
	if known, ok := h.spelling[key]; ok {
		return known
	}
	h.spelling[key] = handle
	return handle
}

// missing are the organisations, of those that the plan's rows name, that are
// not in the Registry, in the order of their handles.
func (h *handles) missing(plan *Plan) []Organisation {
	needed := map[string]string{}
	need := func(handle string) {
		if key := strings.ToLower(handle); handle != "" && !h.present[key] {
			needed[key] = handle
		}
	}
	for i := range plan.InsertPrefixes {
		need(plan.InsertPrefixes[i].Organisation)
		need(plan.InsertPrefixes[i].RouteOrganisation)
	}
	for i := range plan.UpdatePrefixes {
		need(plan.UpdatePrefixes[i].Now.Organisation)
		need(plan.UpdatePrefixes[i].Now.RouteOrganisation)
	}
	for _, a := range plan.InsertASNs {
		need(a.Organisation)
	}
	for _, u := range plan.UpdateASNs {
		need(u.Now.Organisation)
	}
	organisations := make([]Organisation, 0, len(needed))
	for _, handle := range needed {
		organisations = append(organisations, Organisation{Handle: handle})
	}
	slices.SortFunc(organisations, func(a, b Organisation) int { return strings.Compare(a.Handle, b.Handle) })
	return organisations
}
