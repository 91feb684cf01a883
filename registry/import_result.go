package registry

import (
	"fmt"
	"net/netip"
	"strings"

	"hubn/registry/client"
	"hubn/registry/rpsl"
)

// importResult says what a plan changes.
func importResult(req importRequest, plan *rpsl.Plan, state *importState) *client.ImportResult {
	r := &client.ImportResult{
		DryRun:    req.dryRun,
		Prune:     req.options.Prune,
		Objects:   req.objects,
		Unchanged: plan.Unchanged,
		Kinds: map[client.Kind]client.ImportCounts{
			client.KindOrganisation: {Added: len(plan.InsertOrganisations)},
			client.KindASN:          {Added: len(plan.InsertASNs), Changed: len(plan.UpdateASNs), Deleted: len(plan.DeleteASNs)},
			client.KindPrefix:       {Added: len(plan.InsertPrefixes), Changed: changedPrefixes(plan), Deleted: len(plan.DeletePrefixes)},
			client.KindAnycast:      {Added: len(plan.InsertAllocations), Changed: len(plan.UpdateAllocations), Deleted: len(plan.DeleteAllocations)},
		},
		Produced: producedCounts(plan, state),
		Refused:  make([]client.ImportRefusal, 0, len(plan.Refused)),
		Notes:    make([]client.ImportNote, 0, len(plan.Notes)),
		Changes:  []client.ImportChange{},
	}
	for _, counts := range r.Kinds {
		r.Added += counts.Added
		r.Changed += counts.Changed
		r.Deleted += counts.Deleted
	}
	for _, f := range plan.Refused {
		r.Refused = append(r.Refused, client.ImportRefusal{File: f.File, Line: f.Line, Class: string(f.Class), Key: f.Key,
			Attribute: f.Attribute, Value: f.Value, Reason: f.Reason})
	}
	for _, n := range plan.Notes {
		r.Notes = append(r.Notes, client.ImportNote{File: n.File, Line: n.Line, Class: string(n.Class), Key: n.Key, Text: n.Text})
	}
	listChanges(plan, r)
	return r
}

// changedPrefixes counts the prefixes that change in more than their place: a
// new parent is a consequence of another's change.
func changedPrefixes(plan *rpsl.Plan) int {
	n := 0
	for i := range plan.UpdatePrefixes {
		if plan.UpdatePrefixes[i].Changed != rpsl.FieldParent {
			n++
		}
	}
	return n
}

// producedCounts counts the aggregates that get a new version.
func producedCounts(plan *rpsl.Plan, state *importState) map[client.Kind]int {
	prefixes := len(plan.InsertPrefixes) + len(plan.DeletePrefixes)
	for i := range plan.UpdatePrefixes {
		if plan.UpdatePrefixes[i].Changed.Has(publishedFields) {
			prefixes++
		}
	}
	asns := len(plan.InsertASNs) + len(plan.DeleteASNs)
	for i := range plan.UpdateASNs {
		if !strings.EqualFold(plan.UpdateASNs[i].Was.Organisation, plan.UpdateASNs[i].Now.Organisation) {
			asns++
		}
	}
	return map[client.Kind]int{
		client.KindOrganisation: len(plan.InsertOrganisations),
		client.KindASN:          asns,
		client.KindPrefix:       prefixes,
		client.KindAnycast:      len(plan.InsertAllocations) + len(plan.UpdateAllocations) + len(plan.DeleteAllocations) + followers(plan, state),
	}
}

// followers counts the allocations that change in nothing but their holder: they
// follow the prefix that they lie in.
func followers(plan *rpsl.Plan, state *importState) int {
	moved := map[int64]bool{}
	for i := range plan.UpdatePrefixes {
		if u := &plan.UpdatePrefixes[i]; u.Changed.Has(rpsl.FieldOrganisation) {
			moved[u.Was.ID] = true
		}
	}
	counted := map[int64]bool{}
	for i := range plan.UpdateAllocations {
		counted[plan.UpdateAllocations[i].Was.ID] = true
	}
	for i := range plan.DeleteAllocations {
		counted[plan.DeleteAllocations[i].ID] = true
	}
	n := 0
	for id, container := range state.allocationContainer {
		if moved[container] && !counted[id] {
			n++
		}
	}
	return n
}

// listChanges lists the first of the changes.
func listChanges(plan *rpsl.Plan, r *client.ImportResult) {
	add := func(op string, kind client.Kind, label string, what []string, before, after string) {
		if len(r.Changes) >= importChanges {
			r.MoreChanges++
			return
		}
		r.Changes = append(r.Changes, client.ImportChange{Op: op, Kind: kind, Label: label, What: what, Old: before, New: after})
	}
	for _, o := range plan.InsertOrganisations {
		add("add", client.KindOrganisation, o.Handle, nil, "", "")
	}
	for i := range plan.InsertPrefixes {
		add("add", client.KindPrefix, plan.InsertPrefixes[i].CIDR.String(), nil, "", prefixLine(&plan.InsertPrefixes[i]))
	}
	for i := range plan.UpdatePrefixes {
		if u := &plan.UpdatePrefixes[i]; u.Changed != rpsl.FieldParent {
			add("change", client.KindPrefix, u.Now.CIDR.String(), (u.Changed &^ rpsl.FieldParent).Names(), prefixLine(&u.Was), prefixLine(&u.Now))
		}
	}
	for i := range plan.DeletePrefixes {
		add("delete", client.KindPrefix, plan.DeletePrefixes[i].CIDR.String(), nil, prefixLine(&plan.DeletePrefixes[i]), "")
	}
	for i := range plan.InsertAllocations {
		add("add", client.KindAnycast, plan.InsertAllocations[i].Prefix.String(), nil, "", originsLine(&plan.InsertAllocations[i]))
	}
	for i := range plan.UpdateAllocations {
		u := &plan.UpdateAllocations[i]
		add("change", client.KindAnycast, u.Now.Prefix.String(), []string{"origins"}, originsLine(&u.Was), originsLine(&u.Now))
	}
	for i := range plan.DeleteAllocations {
		add("delete", client.KindAnycast, plan.DeleteAllocations[i].Prefix.String(), nil, originsLine(&plan.DeleteAllocations[i]), "")
	}
	for i := range plan.InsertASNs {
		add("add", client.KindASN, asnLabel(plan.InsertASNs[i]), nil, "", asnLine(plan.InsertASNs[i]))
	}
	for i := range plan.UpdateASNs {
		add("change", client.KindASN, asnLabel(plan.UpdateASNs[i].Now), nil, asnLine(plan.UpdateASNs[i].Was), asnLine(plan.UpdateASNs[i].Now))
	}
	for i := range plan.DeleteASNs {
		add("delete", client.KindASN, asnLabel(plan.DeleteASNs[i]), nil, asnLine(plan.DeleteASNs[i]), "")
	}
}

// prefixLine is a prefix's settings in one line.
func prefixLine(p *rpsl.Prefix) string {
	parts := []string{string(p.Kind)}
	if p.Provenance == rpsl.ProvenanceImplied {
		parts = append(parts, "implied")
	}
	if p.Status != rpsl.StatusActive {
		parts = append(parts, string(p.Status))
	}
	if p.Organisation != "" {
		parts = append(parts, "held by "+p.Organisation)
	}
	if p.Name != "" {
		parts = append(parts, p.Name)
	}
	if p.Routing.Announced && p.Routing.Origin != nil {
		parts = append(parts, "origin "+originLine(*p.Routing.Origin, p.Routing.MaxLength, p.CIDR))
	}
	if p.Reverse.Mode != rpsl.ReverseInherit {
		reverse := fmt.Sprintf("reverse %s", p.Reverse.Mode)
		if len(p.Reverse.NameServers) > 0 {
			reverse += " " + strings.Join(p.Reverse.NameServers, " ")
		}
		if len(p.Reverse.DS) > 0 {
			reverse += fmt.Sprintf(" with %d DS", len(p.Reverse.DS))
		}
		parts = append(parts, reverse)
	}
	return strings.Join(parts, ", ")
}

func originsLine(a *rpsl.Allocation) string {
	parts := make([]string, len(a.Origins))
	for i, o := range a.Origins {
		parts[i] = originLine(o.ASN, o.MaxLength, a.Prefix)
	}
	return strings.Join(parts, " ")
}

func originLine(asn uint32, maxLength *int, prefix netip.Prefix) string {
	if maxLength == nil || *maxLength == prefix.Bits() {
		return client.ASN(asn).String()
	}
	return fmt.Sprintf("%s up to /%d", client.ASN(asn), *maxLength)
}

func asnLabel(n rpsl.ASN) string { return client.ASN(n.Number).String() }

func asnLine(n rpsl.ASN) string {
	parts := []string{}
	if n.Organisation != "" {
		parts = append(parts, "held by "+n.Organisation)
	}
	if n.Name != "" {
		parts = append(parts, n.Name)
	}
	return strings.Join(parts, ", ")
}
