package registry

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"go4.org/netipx"

	"hubn/registry/client"
)

const (
	// resourcesOfOrganisation are those that the CA's organisation holds, whatever
	// they are at the time.
	resourcesOfOrganisation = "organisation"
	// resourcesAll is every address and every AS number.
	resourcesAll = "all"
	// maxResources bounds a set: a certificate with more would be refused by relying
	// parties for its size.
	maxResources = 10_000
	lastASN      = client.ASN(1<<32 - 1)
)

// Resources is a set of Internet number resources (RFC 3779) as people write it.
type Resources struct {
	given
	// ofOrganisation stands for what an organisation holds; then the set is empty.
	ofOrganisation bool
	prefixes       []netip.Prefix
	asns           []client.ASNRange
}

// UnmarshalText reads "organisation", "all", or a list of prefixes, addresses,
// ranges of them, AS numbers and ranges of them.
func (r *Resources) UnmarshalText(b []byte) error {
	*r = Resources{given: given{text: string(b)}}
	switch word := strings.ToLower(strings.TrimSpace(r.text)); word {
	case resourcesOfOrganisation:
		r.ofOrganisation = true
	case resourcesAll:
		r.prefixes, r.asns = allPrefixes(), []client.ASNRange{{First: 0, Last: lastASN}}
	default:
		r.prefixes, r.asns, r.err = parseResources(r.text)
	}
	return nil
}

// MarshalText is the set without overlaps in the order of RFC 3779, or what was
// typed if it is none.
func (r Resources) MarshalText() ([]byte, error) {
	if r.err != nil {
		return []byte(r.text), nil
	}
	return []byte(r.String()), nil
}

// String is the set as people write it.
func (r Resources) String() string {
	if r.ofOrganisation {
		return resourcesOfOrganisation
	}
	return resourcesText(r.prefixes, r.asns)
}

// Schema implements huma.SchemaProvider.
func (Resources) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, MaxLength: new(1 << 20), Examples: []any{"192.0.2.0/24, 2001:db8::/32, AS64496-AS64511"},
		Description: "Number resources: prefixes, addresses, AS numbers, and ranges of them with a dash, separated by commas or blanks; or \"all\"; " +
			"for a CA also \"organisation\", those that its organisation holds"}
}

func allPrefixes() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
}

// parseResources reads a list and makes it canonical: sorted, joined where parts
// touch or overlap.
func parseResources(text string) ([]netip.Prefix, []client.ASNRange, error) {
	words := strings.FieldsFunc(withoutBlanksAroundDashes(text), func(c rune) bool { return c == ',' || c == ';' || c == ' ' || c == '\t' || c == '\n' || c == '\r' })
	if len(words) == 0 {
		return nil, nil, errors.New("it names no resource: write for example 192.0.2.0/24, AS64496")
	}
	if len(words) > maxResources {
		return nil, nil, fmt.Errorf("it names %d resources: at most %d are possible", len(words), maxResources)
	}
	var (
		addresses netipx.IPSetBuilder
		numbers   []client.ASNRange
	)
	for _, word := range words {
		from, to, asns, err := parseResourceWord(word)
		switch {
		case err != nil:
			return nil, nil, err
		case from.IsValid():
			addresses.AddRange(netipx.IPRangeFrom(from, to))
		default:
			numbers = append(numbers, asns)
		}
	}
	set, err := addresses.IPSet()
	if err != nil {
		return nil, nil, err
	}
	prefixes := set.Prefixes()
	if len(prefixes) > maxResources {
		return nil, nil, fmt.Errorf("its ranges make %d prefixes: at most %d are possible", len(prefixes), maxResources)
	}
	return prefixes, joinASNs(numbers), nil
}

// withoutBlanksAroundDashes makes "AS1 - AS2" one word.
func withoutBlanksAroundDashes(text string) string {
	parts := strings.Split(text, "-")
	for i := range parts {
		if i > 0 {
			parts[i] = strings.TrimLeft(parts[i], " \t\r\n")
		}
		if i < len(parts)-1 {
			parts[i] = strings.TrimRight(parts[i], " \t\r\n")
		}
	}
	return strings.Join(parts, "-")
}

// parseResourceWord reads one resource or range: from and to are addresses, or
// asns is a range of AS numbers.
func parseResourceWord(word string) (from, to netip.Addr, asns client.ASNRange, err error) {
	if strings.Contains(word, "/") {
		p, err := parsePrefix(word)
		if err != nil {
			return from, to, asns, err
		}
		return p.Addr(), netipx.PrefixLastIP(p), asns, nil
	}
	first, last, ranged := strings.Cut(word, "-")
	if !ranged {
		last = first
	}
	if n, err := client.ParseASN(first); err == nil {
		end, err := client.ParseASN(last)
		if err == nil && end < n {
			err = fmt.Errorf("%s ends before it begins: write %s-%s", word, end, n)
		}
		return from, to, client.ASNRange{First: n, Last: end}, err
	}
	if from, err = parseAddress(first); err != nil {
		return from, to, asns, fmt.Errorf("%q is no resource: write a prefix, an address, an AS number such as AS64496, or a range such as AS64496-AS64511", word)
	}
	if to, err = parseAddress(last); err != nil {
		return netip.Addr{}, to, asns, err
	}
	if !netipx.IPRangeFrom(from, to).IsValid() {
		return netip.Addr{}, to, asns, fmt.Errorf("%s is no range: write the lower address first, both of one family", word)
	}
	return from, to, asns, nil
}

// joinASNs sorts ranges and joins those that touch or overlap.
func joinASNs(ranges []client.ASNRange) []client.ASNRange {
	slices.SortFunc(ranges, func(a, b client.ASNRange) int { return cmp.Compare(a.First, b.First) })
	var out []client.ASNRange
	for _, r := range ranges {
		if n := len(out); n > 0 && (out[n-1].Last == lastASN || r.First <= out[n-1].Last+1) {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// resourcesText writes an explicit set.
func resourcesText(prefixes []netip.Prefix, asns []client.ASNRange) string {
	if slices.Equal(prefixes, allPrefixes()) && slices.Equal(asns, []client.ASNRange{{First: 0, Last: lastASN}}) {
		return resourcesAll
	}
	parts := make([]string, 0, len(prefixes)+len(asns))
	for _, p := range prefixes {
		parts = append(parts, p.String())
	}
	for _, r := range asns {
		if r.First == r.Last {
			parts = append(parts, r.First.String())
			continue
		}
		parts = append(parts, r.First.String()+"-"+r.Last.String())
	}
	return strings.Join(parts, ", ")
}

// multirange writes AS numbers as PostgreSQL reads an int8multirange.
func multirange(asns []client.ASNRange) string {
	parts := make([]string, len(asns))
	for i, r := range asns {
		parts[i] = fmt.Sprintf("[%d,%d]", r.First, r.Last)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// missingFrom is the first resource of a set that another, explicit one does not
// have; empty when it has all.
func (r Resources) missingFrom(prefixes []netip.Prefix, asns []client.ASNRange) string {
	var b netipx.IPSetBuilder
	for _, p := range prefixes {
		b.AddPrefix(p)
	}
	set, err := b.IPSet()
	if err != nil {
		return err.Error() // prefixes of the database are valid
	}
	for _, p := range r.prefixes {
		if !set.ContainsPrefix(p) {
			return p.String()
		}
	}
	for _, wanted := range r.asns {
		if !slices.ContainsFunc(asns, func(have client.ASNRange) bool { return have.First <= wanted.First && wanted.Last <= have.Last }) {
			return resourcesText(nil, []client.ASNRange{wanted})
		}
	}
	return ""
}
