package registry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"hubn/app/problem"
	"hubn/registry/client"
)

const (
	// bulkRowsMost bounds the rows of one import, which are all in memory while they
	// are checked: some 600 bytes each.
	bulkRowsMost = 1_000_000
	// bulkErrorsKept bounds the errors that a job keeps; all are counted. Whoever
	// corrects ten thousand rows corrects what made them.
	bulkErrorsKept = 10_000
)

// bulkRow is a row that was read and is right by itself.
type bulkRow[T any] struct {
	line int
	in   T
	// holder is who is to hold it: 0 for nobody, an organisation's id, or one that
	// the import itself makes, as -1-index.
	holder int64
	// skip: it is there already, and is to be left as it is.
	skip bool
}

// bulkRows are the rows of an import.
type bulkRows struct {
	s *service
	// skipExisting leaves resources that are there already as they are.
	skipExisting bool

	organisations []bulkRow[organisationInput]
	asns          []bulkRow[asnInput]
	prefixes      []bulkRow[prefixRow]
	ptrs          []bulkRow[ptrInput]
	anycasts      []bulkRow[anycastInput]
	// others are of kinds that nobody has many of; each is written as by its POST.
	others []otherRow

	holders     *bulkHolders
	header      *csvHeader // of CSV
	wrong       int        // errorsCount when all was read
	errors      []client.ImportError
	errorsCount int
	// rows counts all that were read, the wrong ones too.
	rows    int
	skipped int
}

type otherRow struct {
	line int
	kind client.Kind
	body json.RawMessage
}

// PrefixInput is prefixInput under a name that schemas see where it is embedded.
type PrefixInput = prefixInput

// prefixRow is what a row says of a prefix: also what only an import of RPSL knows,
// so that an export loses nothing.
type prefixRow struct {
	PrefixInput
	Provenance        string `json:"provenance,omitempty" enum:"registered,implied" doc:"registered if it is left out"`
	RouteOrganisation string `json:"route_organisation,omitempty" maxLength:"80" doc:"Whom the route object of the prefix names, by handle"`
	Range             string `json:"range,omitempty" maxLength:"100" doc:"The range that the prefix is a part of, where its RPSL object is not one CIDR: first-last"`

	first, last *netip.Addr
}

func (in *prefixRow) check(f *faults) {
	in.PrefixInput.check(f)
	if in.Range == "" {
		return
	}
	from, to, _ := strings.Cut(in.Range, "-")
	first, err1 := parseAddress(from)
	last, err2 := parseAddress(to)
	switch {
	case err1 != nil || err2 != nil:
		f.add("body.range", errors.New("a range is two addresses: 192.0.2.0-192.0.2.95"), in.Range)
	case first.Is4() != last.Is4() || last.Less(first):
		f.add("body.range", errors.New("a range begins and ends in one address family, and ends after it begins"), in.Range)
	default:
		in.first, in.last = &first, &last
	}
}

// rowInput is the input of a row. plain tells whether the schema certainly has
// nothing to say of it; then only check is asked.
type rowInput interface {
	input
	plain() bool
}

func short(texts ...string) bool {
	return all(texts, func(s string) bool { return len(s) <= 80 })
}

func (r OrganisationRef) plain() bool {
	return (r.OrganisationID == nil || *r.OrganisationID >= 1) && (r.Organisation == nil || short(*r.Organisation))
}

func (in *organisationInput) plain() bool { return short(in.Handle, in.Name, in.Contact) }

func (in *asnInput) plain() bool {
	return in.Number.text != "" && in.Number.err == nil && in.OrganisationRef.plain() && short(in.Name)
}

func (in *prefixRow) plain() bool {
	r := &in.Reverse
	return in.Prefix.value.IsValid() && in.OrganisationRef.plain() && short(in.Name, in.RouteOrganisation, in.Range) &&
		oneOf(in.Kind, "", "container", "allocation", "assignment", "reserved") &&
		oneOf(in.Status, "", "planned", "active", "retired") &&
		oneOf(in.Provenance, "", "registered", "implied") &&
		oneOf(r.Mode, "", "inherit", "off", "hosted", "delegated") &&
		oneOf(r.RFC2317Style, "", "dash", "slash", "first") &&
		len(r.NameServers) <= 16 && len(r.DS) == 0 && r.NameServerSetID == nil
}

func (in *ptrInput) plain() bool {
	return in.Address.value.IsValid() && in.Target.value != "" && (in.TTL == nil || *in.TTL >= 0 && *in.TTL <= 1<<31-1)
}

func (in *anycastInput) plain() bool {
	return in.Prefix.value.IsValid() && in.OrganisationRef.plain() && in.Service != "" && short(in.Service) && len(in.Origins) <= 1000 &&
		all(in.Origins, func(o originInput) bool { return o.ASN.text != "" && o.ASN.err == nil })
}

func oneOf(s string, words ...string) bool { return slices.Contains(words, s) }

// take adds a row of a kind.
func (b *bulkRows) take(line int, kind client.Kind, body []byte) {
	switch kind {
	case client.KindOrganisation:
		takeRow(b, &b.organisations, line, kind, body)
	case client.KindASN:
		takeRow(b, &b.asns, line, kind, body)
	case client.KindPrefix:
		takeRow(b, &b.prefixes, line, kind, body)
	case client.KindPTR:
		takeRow(b, &b.ptrs, line, kind, body)
	case client.KindAnycast:
		takeRow(b, &b.anycasts, line, kind, body)
	default:
		if _, known := b.s.nouns()[kind]; !known {
			b.refuse(client.ImportError{Line: line, Field: "kind", Value: string(kind),
				Reason: fmt.Sprintf("there is no kind %q that can be imported: %s", kind, b.s.nounKinds())})
			return
		}
		b.takeOther(otherRow{line, kind, bytes.Clone(body)})
	}
}

// takeOther adds a row of a kind that is written as by its POST, if its body can be
// read.
func (b *bulkRows) takeOther(row otherRow) {
	if err := b.s.nouns()[row.kind].check(row.body); err != nil {
		b.refuseProblem(row.line, row.kind, err)
		return
	}
	b.others = append(b.others, row)
}

// takeRow reads a body. Most are right: they are decoded once. Others are read
// again by the schema, which names every fault.
func takeRow[T any, I interface {
	*T
	rowInput
}](b *bulkRows, rows *[]bulkRow[T], line int, kind client.Kind, body []byte) {
	row := bulkRow[T]{line: line}
	var f faults
	in := I(&row.in)
	if decodeStrictly(body, in) == nil && in.plain() {
		if in.check(&f); len(f.list) == 0 {
			*rows = append(*rows, row)
			return
		}
	}
	var document any
	if err := unmarshal(body, &document); err != nil {
		b.refuseProblem(line, kind, notJSON(err))
		return
	}
	checked, err := decoded[I](b.s, document)
	if err != nil {
		b.refuseProblem(line, kind, err)
		return
	}
	row.in = *checked
	*rows = append(*rows, row)
}

// refuse notes an error of a row.
func (b *bulkRows) refuse(e client.ImportError) {
	b.errorsCount++
	if len(b.errors) < bulkErrorsKept {
		if b.header != nil && e.Field != "" {
			e.Field = b.header.column(e.Field)
		}
		e.Field, e.Kind, e.Reason = withoutNUL(e.Field), withoutNUL(e.Kind), withoutNUL(e.Reason)
		e.Value = shownValue(e.Value)
		b.errors = append(b.errors, e)
	}
}

// shownValue is an offending value as far as a job repeats it: a simple one, and not
// longer than an answer's.
func shownValue(value any) any {
	switch v := value.(type) {
	case string:
		return shorten(withoutNUL(v), valueLimit)
	case map[string]any, []any:
		return nil
	}
	return value
}

// withoutNUL is a text that PostgreSQL keeps: it has no character 0.
func withoutNUL(s string) string { return strings.ReplaceAll(s, "\x00", "\uFFFD") }

// shorten is the beginning of a text that is longer than an answer repeats.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

// refuseProblem notes each field of a problem as an error of a row.
func (b *bulkRows) refuseProblem(line int, kind client.Kind, err error) {
	e := problem.Of(databaseProblem(err))
	at := func(f problem.Field) client.ImportError {
		location := strings.TrimPrefix(strings.TrimPrefix(f.Location, "body"), ".")
		return client.ImportError{Line: line, Kind: string(kind), Field: location, Value: f.Value, Reason: f.Message}
	}
	for _, f := range e.Fields {
		b.refuse(at(f))
	}
	if len(e.Fields) == 0 {
		b.refuse(client.ImportError{Line: line, Kind: string(kind), Reason: e.Detail})
	}
}

// again forgets what an attempt found: the Registry is another by now.
func (b *bulkRows) again() {
	b.errors, b.errorsCount, b.skipped = b.errors[:min(b.wrong, len(b.errors))], b.wrong, 0
	unskip(b.organisations)
	unskip(b.asns)
	unskip(b.prefixes)
	unskip(b.ptrs)
	unskip(b.anycasts)
}

func unskip[T any](rows []bulkRow[T]) {
	for i := range rows {
		rows[i].skip = false
	}
}

// sortErrors puts the errors in the order of their lines.
func (b *bulkRows) sortErrors() {
	slices.SortStableFunc(b.errors, func(x, y client.ImportError) int { return cmp.Compare(x.Line, y.Line) })
}

// kinds counts the rows of each kind that can be written.
func (b *bulkRows) kinds() map[client.Kind]int {
	counts := map[client.Kind]int{}
	add := func(kind client.Kind, n int) {
		if n > 0 {
			counts[kind] += n
		}
	}
	add(client.KindOrganisation, len(b.organisations))
	add(client.KindASN, len(b.asns))
	add(client.KindPrefix, len(b.prefixes))
	add(client.KindPTR, len(b.ptrs))
	add(client.KindAnycast, len(b.anycasts))
	for _, o := range b.others {
		add(o.kind, 1)
	}
	return counts
}

// total is how many rows there are to write.
func (b *bulkRows) total() (n int) {
	for _, count := range b.kinds() {
		n += count
	}
	return n
}
