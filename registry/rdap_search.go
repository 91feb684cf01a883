package registry

import (
	"context"
	"net/netip"
	"net/url"
	"strings"

	"go4.org/netipx"

	"hubn/app/problem"
	"hubn/registry/rdap"
)

// searchResults is how many results a search lists.
const searchResults = 100

const (
	sqlPublicByHandle     = sqlPublicOrganisations + ` WHERE lower(o.handle) LIKE lower($1) ORDER BY lower(o.handle) LIMIT $2`
	sqlPublicByName       = sqlPublicOrganisations + ` WHERE lower(o.name) LIKE lower($1) ORDER BY o.id LIMIT $2`
	sqlPublicByNameServer = sqlPublicPrefixes + `
WHERE p.id = ANY(ARRAY(
  SELECT q.id
  FROM registry.prefix q
  WHERE cardinality(q.name_servers) > 0
    AND q.name_servers @> ARRAY[$1::text]
  UNION ALL
  SELECT q.id
  FROM registry.prefix q
  JOIN registry.name_server_set s ON s.id = q.name_server_set_id
  WHERE s.servers @> ARRAY[$1::text]
  LIMIT $2
))
ORDER BY p.prefix`
)

// search answers a search (RFC 9082 section 3.2). It is for those who may read the
// registry: others could list it by searching.
func (q *asking) search(ctx context.Context, kind string, query url.Values) (document any, err error) {
	if !q.trusted {
		if callOf(ctx).principal.Name != "" {
			return nil, problem.New(problem.Forbidden, "searches need a token that may read the registry")
		}
		return nil, problem.New(problem.Unauthenticated, "searches need a token that may read the registry: send the header Authorization: Bearer hubn_…")
	}
	by, pattern, err := searchTerm(kind, query)
	if err != nil {
		return nil, err
	}
	find := map[string]func(context.Context, querier, string) (any, error){
		"entities?handle":   q.entitiesBy(sqlPublicByHandle),
		"entities?fn":       q.entitiesBy(sqlPublicByName),
		"domains?name":      q.domainsByName,
		"domains?nsLdhName": q.domainsByServer,
		"nameservers?name":  q.nameserversByName,
	}[kind+"?"+by]
	if find == nil {
		return nil, unsupported("%s cannot be searched by %s here: %shelp says what can be", kind, by, rdapPath)
	}
	err = q.service.read(ctx, func(ctx context.Context, tx *reading) error {
		document, err = find(ctx, tx, pattern)
		return err
	})
	return document, err
}

// searchTerm is the one parameter of a search.
func searchTerm(kind string, query url.Values) (by, pattern string, err error) {
	for name, values := range query {
		for _, value := range values {
			if by != "" {
				return "", "", problem.New(problem.Invalid, "a search has one parameter, and this has %s and %s", by, name)
			}
			by, pattern = name, value
		}
	}
	if by == "" || pattern == "" || len(pattern) > 300 {
		return "", "", problem.New(problem.Invalid, "a search of %s needs one parameter, of 1 to 300 characters: %shelp says which", kind, rdapPath)
	}
	return by, pattern, nil
}

// beginning is the LIKE pattern of a partial string: an asterisk stands at its end
// only (RFC 9082 section 4.1).
func beginning(pattern string) (string, error) {
	text, open := strings.CutSuffix(pattern, "*")
	if strings.Contains(text, "*") || text == "" {
		return "", problem.New(problem.Invalid, "%q cannot be searched for: write some characters, and * at the end if they are the beginning", pattern)
	}
	like := strings.TrimSuffix(strings.TrimPrefix(contains(text), "%"), "%")
	if open {
		like += "%"
	}
	return like, nil
}

func (q *asking) entitiesBy(sql string) func(context.Context, querier, string) (any, error) {
	return func(ctx context.Context, tx querier, pattern string) (any, error) {
		like, err := beginning(pattern)
		if err != nil {
			return nil, err
		}
		found, err := collect(ctx, tx, scanPublicOrganisation, sql, like, searchResults+1)
		if err != nil {
			return nil, err
		}
		return q.writer.Entities(found[:min(len(found), searchResults)], len(found) > searchResults), nil
	}
}

func (q *asking) domainsByName(ctx context.Context, tx querier, pattern string) (any, error) {
	name, below := strings.CutPrefix(pattern, "*.")
	asked, err := rdap.ReversePrefix(name)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%v", err)
	}
	if !below {
		return q.domainsAt(ctx, tx, asked)
	}
	last := netipx.PrefixLastIP(asked)
	found, err := collect(ctx, tx, scanPublicPrefix, sqlPublicWithin, asked, netip.PrefixFrom(last, last.BitLen()), searchResults+1)
	if err != nil {
		return nil, err
	}
	return q.domains(found), nil
}

// domainsAt answers the zones of the one prefix that has the name.
func (q *asking) domainsAt(ctx context.Context, tx querier, asked netip.Prefix) (any, error) {
	found, err := collect(ctx, tx, scanPublicPrefix, sqlPublicWithin, asked, asked, 1)
	if err != nil {
		return nil, err
	}
	return q.domains(found), nil
}

func (q *asking) domainsByServer(ctx context.Context, tx querier, pattern string) (any, error) {
	name, err := parseHostName(pattern)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%v", err)
	}
	found, err := collect(ctx, tx, scanPublicPrefix, sqlPublicByNameServer, name, searchResults+1)
	if err != nil {
		return nil, err
	}
	return q.domains(found), nil
}

// domains answers the zones of the prefixes that have some of their own.
func (q *asking) domains(found []rdap.Prefix) any {
	more := len(found) > searchResults
	var zones []rdap.Prefix
	for _, p := range found[:min(len(found), searchResults)] {
		if p.Mode == "hosted" || p.Mode == "delegated" {
			q.ownServers(&p)
			zones = append(zones, p)
		}
	}
	return q.writer.Domains(zones, searchResults, more)
}

func (q *asking) nameserversByName(ctx context.Context, tx querier, pattern string) (any, error) {
	if strings.Contains(pattern, "*") {
		return nil, unsupported("name servers are searched for by their whole name here: write it without *")
	}
	name, err := parseHostName(pattern)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%v", err)
	}
	known, err := q.service.isNameServer(ctx, tx, name)
	if err != nil {
		return nil, err
	}
	if !known {
		return q.writer.Nameservers(nil), nil
	}
	return q.writer.Nameservers([]string{name}), nil
}
