package registry

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
)

func (s *service) exportRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/export/vrps", id: "export-vrps", tag: "import and export",
		summary: "Export the wanted route origins", needs: exportData,
		description: "Every (ASN, prefix, maxLength) that an active source states, each once: as CSV lines AS64496,192.0.2.0/24,24 " +
			"in the order of prefixes, or as JSON {\"roas\": [{\"asn\", \"prefix\", \"maxLength\"}]}. It is what ought to be, not what is published.",
	}, s.exportVRPs)
}

type exportInput struct {
	Format string `query:"format" enum:"csv,json" default:"csv"`
}

func (s *service) exportVRPs(ctx context.Context, in *exportInput) (*huma.StreamResponse, error) {
	return &huma.StreamResponse{Body: func(h huma.Context) {
		_, w := humago.Unwrap(h)
		out := newVRPWriter(w, in.Format)
		err := s.read(ctx, func(ctx context.Context, tx *reading) error { return eachVRP(ctx, tx, out.write) })
		switch {
		case err == nil:
			out.end()
		case out.begun:
			// The answer began: only a broken connection can say that it is not whole.
			callOf(ctx).cause = err
			panic(http.ErrAbortHandler)
		default:
			w.Header().Del("Content-Type")
			s.refuse(w, callOf(ctx), s.document(ctx, err).fault)
		}
	}}, nil
}

// sqlVRPs is the route origins of all active sources, each once. A maxLength
// that is not stated is the prefix's own length.
const sqlVRPs = `
SELECT origin, prefix, max_length
FROM (
  SELECT p.origin_asn AS origin, p.prefix, coalesce(p.max_length, masklen(p.prefix)) AS max_length
  FROM registry.prefix p
  WHERE p.announced
    AND p.status = 'active'
  UNION
  SELECT o.asn, o.prefix, coalesce(o.max_length, masklen(o.prefix))
  FROM registry.anycast_route_origin o
  WHERE o.active
) vrp
ORDER BY prefix, max_length, origin`

// eachVRP passes the wanted route origins in order.
func eachVRP(ctx context.Context, tx pgx.Tx, each func(client.Tuple) error) error {
	rows, err := tx.Query(ctx, sqlVRPs)
	if err != nil {
		return err
	}
	var (
		asn    int64
		prefix netip.Prefix
		length int
	)
	_, err = pgx.ForEachRow(rows, []any{&asn, &prefix, &length}, func() error {
		return each(client.Tuple{ASN: client.ASN(asn), Prefix: prefix, MaxLength: length})
	})
	return err
}

// vrpWriter writes route origins as they come; the answer begins with the first.
type vrpWriter struct {
	answer http.ResponseWriter
	out    *bufio.Writer
	json   bool
	begun  bool
	first  bool
}

func newVRPWriter(w http.ResponseWriter, format string) *vrpWriter {
	return &vrpWriter{answer: w, out: bufio.NewWriterSize(w, 64<<10), json: format == "json", first: true}
}

func (v *vrpWriter) begin() {
	if v.begun {
		return
	}
	v.begun = true
	media, head := "text/csv; charset=utf-8; header=absent", "" // RFC 4180 section 3
	if v.json {
		media, head = "application/json", `{"roas":[`
	}
	v.answer.Header().Set("Content-Type", media)
	v.answer.WriteHeader(http.StatusOK) // also of an answer without any line
	_, _ = v.out.WriteString(head)
}

// exportedVRP is a route origin in the JSON that RPKI validators write and read.
type exportedVRP struct {
	ASN       string `json:"asn"`
	Prefix    string `json:"prefix"`
	MaxLength int    `json:"maxLength"`
}

func (v *vrpWriter) write(t client.Tuple) error {
	v.begin()
	if !v.json {
		_, err := v.out.WriteString(t.String() + "\n")
		return err
	}
	text, err := json.Marshal(exportedVRP{ASN: t.ASN.String(), Prefix: t.Prefix.String(), MaxLength: t.MaxLength})
	if err != nil {
		return err
	}
	separator := ",\n"
	if v.first {
		v.first, separator = false, "\n"
	}
	_, _ = v.out.WriteString(separator)
	_, err = v.out.Write(text)
	return err
}

func (v *vrpWriter) end() {
	v.begin()
	if v.json {
		_, _ = v.out.WriteString("\n]}\n")
	}
	_ = v.out.Flush()
}
