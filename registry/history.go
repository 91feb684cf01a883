package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) historyRoutes() {
	const tag = "history"
	key := "The key may be a name that the resource had at the time, such as 192.0.2.0%2F24 of a prefix that is deleted by now."
	register(s, operation{
		method: http.MethodGet, path: "/v1/changes/{kind}/{key}/at", id: "get-past", tag: tag,
		summary: "Read a resource as it was at a time", needs: readHistory, problems: []problem.Kind{problem.NotFound},
		description: key + " Times are those of the database's clock when the rows were written.",
	}, s.getPast)
	register(s, operation{
		method: http.MethodGet, path: "/v1/changes/{kind}/{key}/holders", id: "list-holders", tag: tag,
		summary: "List who held a resource, and since when", needs: readHistory, problems: []problem.Kind{problem.NotFound},
		description: "For an organisation: what it holds now, and since when, at most 1,000 resources. For others the key may be a name; then all that had it are listed.",
	}, s.listHolders)
}

// mainTables is the table whose row an aggregate stands and falls with.
var mainTables = map[client.Kind]string{
	client.KindOrganisation: "organisation",
	client.KindASN:          "asn",
	client.KindPrefix:       "prefix",
	client.KindPTR:          "ptr_record",
	client.KindAnycast:      "anycast_allocation",
	client.KindCA:           "certificate_authority",
	client.KindSession:      "bgp_session",
	client.KindNameServers:  "name_server_set",
}

// PastPath is the path of a resource's past.
type PastPath struct {
	Kind client.Kind `path:"kind"`
	Key  string      `path:"key" maxLength:"200"`
}

type getPastInput struct {
	PastPath
	Time time.Time `query:"time" required:"true" doc:"When"`
}

type pastOutput struct {
	Body client.Past
}

// Of each row the last entry until the time, with what it left; where there is
// none, the first one after it, with what it found.
const sqlRowsAt = `
SELECT DISTINCT ON (c.table_name, c.row_id)
       c.table_name,
       c.row_id,
       CASE WHEN c.at <= $3 THEN c.id ELSE 0 END,
       c.at,
       coalesce(registry.change_name(c.table_name, CASE WHEN c.at <= $3 THEN c.after ELSE c.before END), ''),
       (CASE WHEN c.at <= $3 THEN c.after ELSE c.before END - 'password_sealed')::text
FROM registry.change_log c
WHERE c.kind = $1
  AND c.agg_key = $2
ORDER BY c.table_name, c.row_id, c.at > $3, CASE WHEN c.at <= $3 THEN c.id END DESC, c.id`

func (s *service) getPast(ctx context.Context, in *getPastInput) (*pastOutput, error) {
	out := &pastOutput{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		resources, err := resourcesOf(ctx, tx, in.Kind, in.Key)
		if err != nil {
			return err
		}
		// Of several that had the name, the one that was there then.
		for i, r := range resources {
			past, err := readPast(ctx, tx, r, in.Time)
			if err != nil {
				return err
			}
			if past.Exists || i == 0 {
				out.Body = past
			}
			if past.Exists {
				break
			}
		}
		out.Body.Lineage = tx.Lineage
		return nil
	})
	return out, err
}

func readPast(ctx context.Context, q querier, r client.Resource, at time.Time) (client.Past, error) {
	past := client.Past{Resource: r, Time: at.UTC(), Rows: []client.PastRow{}}
	rows, err := q.Query(ctx, sqlRowsAt, string(r.Kind), r.Key, at)
	if err != nil {
		return past, err
	}
	var (
		row     client.PastRow
		id      int64
		changed time.Time
		name    string
		data    *string
		known   bool
	)
	_, err = pgx.ForEachRow(rows, []any{&row.Table, &row.Row, &id, &changed, &name, &data}, func() error {
		known = true
		if id > past.Change {
			past.Change, past.ChangedAt = id, changed
		}
		if data == nil {
			return nil
		}
		row.Data = json.RawMessage(*data)
		past.Rows = append(past.Rows, row)
		if row.Table == mainTables[r.Kind] {
			past.Exists, past.Name = true, name
		}
		return nil
	})
	if err != nil {
		return past, err
	}
	if !known {
		return past, problem.New(problem.NotFound, "the change log has nothing of %s", r).With("resource", r)
	}
	for _, row := range past.Rows {
		if err := readable(ctx, q, client.Change{Resource: r, TraceChange: client.TraceChange{Table: row.Table, After: row.Data}}); err != nil {
			return past, err
		}
	}
	past.Object, err = pastObject(ctx, q, r.Kind, past.Rows)
	return past, err
}

// pastRow has the columns of all tables that the API's objects are made of.
type pastRow struct {
	ID              int64              `json:"id"`
	Number          client.ASN         `json:"number"`
	Prefix          netip.Prefix       `json:"prefix"`
	ParentID        int64              `json:"parent_id"`
	ContainerID     int64              `json:"container_id"`
	OrganisationID  int64              `json:"organisation_id"`
	Handle          string             `json:"handle"`
	Name            string             `json:"name"`
	Contact         string             `json:"contact"`
	Service         string             `json:"service"`
	Kind            string             `json:"kind"`
	Status          string             `json:"status"`
	Provenance      string             `json:"provenance"`
	Announced       bool               `json:"announced"`
	OriginASN       *client.ASN        `json:"origin_asn"`
	MaxLength       *int               `json:"max_length"`
	ReverseMode     client.ReverseMode `json:"reverse_mode"`
	NameServers     []string           `json:"name_servers"`
	NameServerSetID int64              `json:"name_server_set_id"`
	DS              []client.DS        `json:"ds"`
	RFC2317Style    string             `json:"rfc2317_style"`
	ZoneCut         *int               `json:"zone_cut"`
	Address         netip.Addr         `json:"address"`
	Target          string             `json:"target"`
	TargetTyped     string             `json:"target_typed"`
	TTL             *int               `json:"ttl"`
	ASN             client.ASN         `json:"asn"`
	Active          bool               `json:"active"`
	Revision        int64              `json:"revision"`
}

// pastObject is the object that the API answered when the rows were these; nil
// where nothing was, or the kind has no such form here.
func pastObject(ctx context.Context, q querier, kind client.Kind, rows []client.PastRow) (json.RawMessage, error) {
	var main *pastRow
	records, origins := []client.PTRRecord{}, []client.RouteOrigin{}
	for _, row := range rows {
		var r pastRow
		switch row.Table {
		case "organisation", "asn", "prefix", "ptr_record", "anycast_allocation", "anycast_route_origin":
		default:
			continue
		}
		if err := json.Unmarshal(row.Data, &r); err != nil {
			return nil, err
		}
		switch row.Table {
		case "anycast_route_origin":
			origins = append(origins, client.RouteOrigin{ID: r.ID, ASN: r.ASN, MaxLength: r.MaxLength, Active: r.Active, Revision: r.Revision})
		case "ptr_record":
			records = append(records, client.PTRRecord{ID: r.ID, Address: r.Address, Target: r.Target, TargetTyped: r.TargetTyped, TTL: r.TTL, Revision: r.Revision})
		default:
			main = &r
		}
	}
	if kind == client.KindPTR && len(records) > 0 {
		return json.Marshal(records)
	}
	if main == nil {
		return nil, nil
	}
	holder, err := calledOnce(ctx, q, main.OrganisationID)
	if err != nil {
		return nil, err
	}
	switch kind {
	case client.KindOrganisation:
		return json.Marshal(client.Organisation{ID: main.ID, Handle: main.Handle, Name: main.Name, Contact: main.Contact, Revision: main.Revision})
	case client.KindASN:
		return json.Marshal(client.ASNHolder{Number: main.Number, OrganisationID: main.OrganisationID, Organisation: holder, Name: main.Name,
			Special: specialASN(main.Number), Revision: main.Revision})
	case client.KindAnycast:
		slices.SortFunc(origins, func(a, b client.RouteOrigin) int {
			return cmp.Or(cmp.Compare(a.ASN, b.ASN), cmp.Compare(lengthOf(a), lengthOf(b)))
		})
		return json.Marshal(client.Anycast{ID: main.ID, Prefix: main.Prefix, ContainerID: main.ContainerID, OrganisationID: main.OrganisationID,
			Organisation: holder, Service: main.Service, Origins: origins, Revision: main.Revision})
	}
	return json.Marshal(client.Prefix{ID: main.ID, Prefix: main.Prefix, ParentID: main.ParentID, OrganisationID: main.OrganisationID, Organisation: holder,
		Kind: main.Kind, Status: main.Status, Provenance: main.Provenance, Name: main.Name,
		Routing: client.Routing{Announced: main.Announced, Origin: main.OriginASN, MaxLength: main.MaxLength},
		Reverse: client.Reverse{Mode: main.ReverseMode, NameServers: main.NameServers, NameServerSetID: main.NameServerSetID, DS: main.DS,
			RFC2317Style: main.RFC2317Style, ZoneCut: main.ZoneCut},
		Revision: main.Revision})
}

// lengthOf is a max_length, one that is not stated before all others.
func lengthOf(o client.RouteOrigin) int {
	if o.MaxLength == nil {
		return -1
	}
	return *o.MaxLength
}

// calledOnce is the handle of an organisation, the last one where it is deleted.
func calledOnce(ctx context.Context, q querier, id int64) (string, error) {
	if id == 0 {
		return "", nil
	}
	r := client.Resource{Kind: client.KindOrganisation, Key: strconv.FormatInt(id, 10)}
	labels, err := readLabels(ctx, q, []client.Resource{r})
	if err != nil || labels[r] != "" {
		return labels[r], err
	}
	return formerLabel(ctx, q, r)
}
