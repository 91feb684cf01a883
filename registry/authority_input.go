package registry

import (
	"context"
	"errors"
	"net/netip"

	"github.com/danielgtaylor/huma/v2"

	"hubn/registry/client"
)

const (
	caHosted    = "hosted"
	caDelegated = "delegated"
	stateActive = "active"
	// stateRetired: it certifies nothing any more, and what it certified is withdrawn.
	stateRetired = "retired"
)

// authorityInput is what a client writes of a certificate authority.
type authorityInput struct {
	Name   string  `json:"name" maxLength:"80" doc:"Unique" example:"example-ca"`
	Parent *string `json:"parent,omitempty" maxLength:"80" doc:"The CA that certifies it, by id or name; without one it is a trust anchor"`
	OrganisationRef
	Mode      string     `json:"mode,omitempty" enum:"hosted,delegated" doc:"hosted (its key is kept here) if it is left out; it does not change"`
	CSR       *CSR       `json:"csr,omitempty" doc:"The request of a delegated CA (RFC 6487 section 6, RFC 7935)"`
	Resources *Resources `json:"resources,omitempty" doc:"organisation if it is left out"`
	State     string     `json:"state,omitempty" enum:"active,retired" doc:"active if it is left out"`
}

// Resolve implements huma.Resolver.
func (in *authorityInput) Resolve(huma.Context) []error { return checked(in) }

func (in *authorityInput) check(f *faults) {
	switch {
	case !handlePattern.MatchString(in.Name):
		f.add("body.name", errors.New("a name has 1 to 80 letters, digits, dots, dashes and underscores, and begins with a letter or digit"), in.Name)
	case numberPattern.MatchString(in.Name):
		f.add("body.name", errors.New("a name of digits alone looks like an id: add a letter"), in.Name)
	}
	if r := in.Resources; r != nil {
		r.check(f, "body.resources")
	}
	if in.resources().ofOrganisation && in.OrganisationID == nil && in.Organisation == nil {
		f.add("body.resources", errors.New("its resources are those of its organisation, and it has none: write organisation, or name the resources"), resourcesOfOrganisation)
	}
	switch {
	case in.mode() == caHosted && in.CSR != nil:
		f.add("body.csr", errors.New("the key of a hosted CA is made here: leave csr out, or write mode delegated"), nil)
	case in.mode() == caDelegated && in.CSR == nil:
		f.add("body.csr", errors.New("a delegated CA keeps its key elsewhere: send its request for a certificate"), nil)
	case in.CSR != nil:
		in.CSR.check(f, "body.csr")
	}
	if in.mode() == caDelegated && in.Parent == nil {
		f.add("body.parent", errors.New("a delegated CA is certified by another: name it"), nil)
	}
	if in.CSR != nil && in.CSR.value != nil {
		for _, err := range in.CSR.value.checkAuthority() {
			f.add("body.csr", err, nil)
		}
	}
}

func (in *authorityInput) mode() string { return orDefault(in.Mode, caHosted) }

func (in *authorityInput) resources() Resources {
	if in.Resources == nil {
		return Resources{ofOrganisation: true}
	}
	return *in.Resources
}

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// authorityInputOf is what a CA would be written as.
func authorityInputOf(a client.CertificateAuthority) (*authorityInput, error) {
	in := &authorityInput{Name: a.Name, OrganisationRef: holderRef(a.OrganisationID, a.Organisation), Mode: a.Mode, State: a.State, Resources: &Resources{}}
	if a.ParentID != 0 {
		in.Parent = &a.Parent
	}
	if err := in.Resources.UnmarshalText([]byte(a.Resources)); err != nil {
		return nil, err
	}
	if a.CSR != "" {
		in.CSR = &CSR{}
		return in, in.CSR.UnmarshalText([]byte(a.CSR))
	}
	return in, nil
}

// authorityRow is what is written of a CA; the order is that of its statements.
type authorityRow struct {
	in     *authorityInput
	parent *int64
	holder *int64
}

// row finds whom the input names.
func (in *authorityInput) row(ctx context.Context, w *writing) (row authorityRow, parent client.CertificateAuthority, err error) {
	row.in = in
	if row.holder, err = in.find(ctx, w); err != nil || in.Parent == nil {
		return row, parent, err
	}
	parent, err = findAuthority(ctx, w, *in.Parent)
	if isAbsent(err) {
		return row, parent, invalid("body.parent", *in.Parent, "there is no CA %q: create it first, or name another", *in.Parent)
	}
	row.parent = &parent.ID
	return row, parent, err
}

func (r authorityRow) args() []any {
	in, resources := r.in, r.in.resources()
	kind, prefixes := "explicit", resources.prefixes
	if resources.ofOrganisation {
		kind = resourcesOfOrganisation
	}
	if prefixes == nil {
		prefixes = []netip.Prefix{}
	}
	var csr, key []byte
	if in.CSR != nil {
		csr, key = in.CSR.value.Raw, in.CSR.value.keyID
	}
	return []any{in.Name, r.parent, r.holder, in.mode(), csr, key, kind, prefixes, multirange(resources.asns), orDefault(in.State, stateActive)}
}

// targets are what a change touches beside the CA's organisation: whoever gives a
// CA its resources by name, or makes it hang from another's or from none, speaks
// for more than one organisation.
func (in *authorityInput) targets(now *client.CertificateAuthority, holder *int64, parent client.CertificateAuthority) []target {
	own := []int64{holderID(holder)}
	if now != nil {
		own = append(own, now.OrganisationID)
	}
	all := []target{{organisations: own}}
	named := in.resources()
	if !named.ofOrganisation && (now == nil || now.Resources != named.String()) {
		all = append(all, target{})
	}
	switch {
	case now != nil && now.ParentID == parent.ID:
	case parent.ID == 0:
		all = append(all, target{})
	default:
		all = append(all, target{organisations: []int64{parent.OrganisationID}})
	}
	return all
}

// modeKept refuses what would be another CA.
func modeKept(now client.CertificateAuthority, next *authorityInput) error {
	if next.mode() == now.Mode {
		return nil
	}
	return invalid("body.mode", next.Mode, "the mode of a CA does not change: create a %s one and retire %s", next.Mode, now.Name)
}
