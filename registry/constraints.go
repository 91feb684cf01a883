package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"hubn/app/problem"
)

// violated says what it means for a client that a constraint of the schema
// refused its change.
type violated struct {
	kind problem.Kind
	// location is the field that is wrong; empty when none is.
	location string
	message  string
}

// constraints has every constraint that a request can run into. Handlers say most
// of it earlier and with more words; this is what holds against races, and for
// what only the database can know.
var constraints = map[string]violated{
	"organisation_handle_key":     {problem.Conflict, "body.handle", "another organisation has this handle (case does not count): choose another, or change that one"},
	"organisation_handle_check":   {problem.Invalid, "body.handle", "a handle has 1 to 80 letters, digits, dots, dashes and underscores, and begins with a letter or digit"},
	"asn_pkey":                    {problem.Conflict, "body.number", "this AS number is in the registry already: change that one"},
	"asn_number_check":            {problem.Invalid, "body.number", "an AS number is 1 to 4294967295"},
	"asn_organisation_id_fkey":    {problem.Conflict, "body.organisation", "there is no such organisation, or it still holds AS numbers"},
	"name_server_set_name_key":    {problem.Conflict, "body.name", "another name server set has this name"},
	"prefix_key":                  {problem.Conflict, "body.prefix", "this prefix is in the registry already: change that one"},
	"prefix_siblings_disjoint":    {problem.Conflict, "body.prefix", "it overlaps another prefix that was created at the same time: try again"},
	"prefix_inside_parent":        {problem.Conflict, "body.prefix", "it does not lie inside its parent"},
	"prefix_parent_fkey":          {problem.Conflict, "body.prefix", "its parent changed at the same time, or it still has more specific prefixes: try again"},
	"prefix_not_mapped":           {problem.Invalid, "body.prefix", "an IPv4-mapped IPv6 prefix is not an allocation: write the IPv4 prefix"},
	"prefix_organisation_id_fkey": {problem.Conflict, "body.organisation", "there is no such organisation, or it still holds prefixes"},
	"prefix_route_organisation_id_fkey": {problem.Conflict, "",
		"route objects still name this organisation"},
	"prefix_kind_check":                   {problem.Invalid, "body.kind", "a kind is container, allocation, assignment or reserved"},
	"prefix_status_check":                 {problem.Invalid, "body.status", "a status is planned, active or retired"},
	"prefix_origin_asn_check":             {problem.Invalid, "body.routing.origin", "an AS number is 0 to 4294967295"},
	"prefix_announced_has_origin":         {problem.Invalid, "body.routing.origin", "an announced prefix needs an origin; AS0 says that nobody may originate it"},
	"prefix_max_length_bounds":            {problem.Invalid, "body.routing.max_length", "a max_length is from the prefix's own length to 32 for IPv4 and 128 for IPv6, and goes with an origin"},
	"prefix_reverse_mode_check":           {problem.Invalid, "body.reverse.mode", "a mode is inherit, off, hosted or delegated"},
	"prefix_name_servers_valid":           {problem.Invalid, "body.reverse.name_servers", "name servers are at most 16 host names"},
	"prefix_name_servers_once":            {problem.Invalid, "body.reverse.name_servers", "name either name_servers or a name_server_set_id, not both"},
	"prefix_delegated_has_servers":        {problem.Invalid, "body.reverse.name_servers", "a delegated reverse zone needs name servers"},
	"prefix_name_server_set_id_fkey":      {problem.Conflict, "body.reverse.name_server_set_id", "there is no such name server set, or prefixes still use it"},
	"prefix_ds_valid":                     {problem.Invalid, "body.reverse.ds", "a DS record has a key tag, an algorithm, a digest type, and a digest of that type's length in hexadecimal"},
	"prefix_rfc2317_style_check":          {problem.Invalid, "body.reverse.rfc2317_style", "a style is dash, slash or first"},
	"prefix_zone_cut_bounds":              {problem.Invalid, "body.reverse.zone_cut", "a zone cut is from the prefix's own length to 32 for IPv4 and 128 for IPv6"},
	"ptr_record_key":                      {problem.Conflict, "body.target", "this address has a PTR record with this target already"},
	"ptr_record_host":                     {problem.Invalid, "body.address", "a PTR record belongs to one address, without a prefix length"},
	"ptr_record_not_mapped":               {problem.Invalid, "body.address", "an IPv4-mapped IPv6 address has no reverse zone: write the IPv4 address"},
	"ptr_record_inside_prefix":            {problem.Conflict, "body.address", "the address does not lie in its prefix"},
	"ptr_record_prefix_fkey":              {problem.Conflict, "body.address", "no prefix covers the address (create the prefix first), or PTR records still lie in the prefix"},
	"ptr_record_target_check":             {problem.Invalid, "body.target", "a target is a host name of at most 253 characters"},
	"ptr_record_ttl_check":                {problem.Invalid, "body.ttl", "a TTL is 0 to 2147483647 seconds (RFC 2181 section 8)"},
	"anycast_allocation_key":              {problem.Conflict, "body.service", "this prefix has an anycast allocation for this service already"},
	"anycast_allocation_service_check":    {problem.Invalid, "body.service", "a service has a name of at most 200 characters"},
	"anycast_allocation_not_mapped":       {problem.Invalid, "body.prefix", "an IPv4-mapped IPv6 prefix is not an allocation: write the IPv4 prefix"},
	"anycast_allocation_inside_container": {problem.Conflict, "body.prefix", "it does not lie in the prefix that contains it"},
	"anycast_allocation_container_fkey":   {problem.Conflict, "body.prefix", "no prefix covers it (create the prefix first), or anycast allocations still lie in the prefix"},
	"anycast_allocation_organisation_id_fkey": {problem.Conflict, "body.organisation",
		"there is no such organisation, or it still holds anycast allocations"},
	"anycast_allocation_same_organisation": {problem.Conflict, "body.organisation",
		"the prefix that it lies in is held by another organisation: nobody may originate others' address space"},
	"anycast_route_origin_key":               {problem.Invalid, "body.origins", "an origin is named twice"},
	"anycast_route_origin_asn_check":         {problem.Invalid, "body.origins", "an AS number is 0 to 4294967295"},
	"anycast_route_origin_max_length_bounds": {problem.Invalid, "body.origins", "a max_length is from the prefix's own length to 32 for IPv4 and 128 for IPv6"},
	"certificate_authority_organisation_id_fkey": {problem.Conflict, "",
		"certificate authorities still belong to this organisation"},
	"api_token_roles_check":           {problem.Invalid, "body.roles", "there is no such role"},
	"role_grant_organisation_key":     {problem.Conflict, "body.organisation", "the token has this role on this organisation already"},
	"role_grant_prefix_key":           {problem.Conflict, "body.prefix", "the token has this role on this prefix already"},
	"role_grant_organisation_id_fkey": {problem.Conflict, "body.organisation", "the organisation was deleted meanwhile: name another"},
	"api_token_module":                {problem.Invalid, "body.module", "the role module and the module's name go together"},

	"certificate_authority_name_key": {problem.Conflict, "body.name", "another CA has this name: choose another, or change that one"},
	"certificate_authority_parent_id_fkey": {problem.Conflict, "body.parent",
		"there is no such CA, or it still certifies others"},
	"certificate_authority_mode_kept":        {problem.Invalid, "body.mode", "the mode of a CA does not change: create another and retire this one"},
	"certificate_authority_not_own_parent":   {problem.Conflict, "body.parent", "a CA does not certify itself: name another, or none for a trust anchor"},
	"certificate_authority_no_circle":        {problem.Conflict, "body.parent", "this CA lies below the one that it is to certify: name another"},
	"certificate_authority_parent_hosted":    {problem.Conflict, "body.parent", "this CA is delegated: what it certifies is its own business; name a hosted one"},
	"certificate_authority_parent_active":    {problem.Conflict, "body.parent", "this CA is retired: name an active one, or make that one active first"},
	"certificate_authority_children_retired": {problem.Conflict, "body.state", "it still certifies active CAs: retire or move those first"},
	"certificate_authority_key_id_key": {problem.Conflict, "body.csr",
		"this key is certified already, for another CA or by a certificate: make a request with a new key"},
	"certificate_authority_delegated_has_csr": {problem.Invalid, "body.csr", "a delegated CA has a request, a hosted one none"},
	"certificate_authority_delegated_has_parent": {problem.Invalid, "body.parent",
		"a delegated CA is certified by another: name it"},
	"certificate_ca_id_fkey":               {problem.Conflict, "body.ca", "there is no such CA, or it still has certificates"},
	"certificate_ca_hosted":                {problem.Conflict, "body.ca", "this CA is delegated: it certifies by itself, with its own key; name a hosted one"},
	"certificate_ca_active":                {problem.Conflict, "body.ca", "this CA is retired and certifies nothing: name an active one"},
	"certificate_validity":                 {problem.Invalid, "body.not_after", "it ends before it begins: write a later time"},
	"certificate_key_of_one_ca":            {problem.Conflict, "body.csr", "this key is that of a CA, or another CA has certified it: make a request with a new key"},
	"certificate_validity_written":         {problem.Invalid, "body.not_after", "not_before and not_after lie in the years 1 to 9999 of UTC"},
	"certificate_prefixes_valid":           {problem.Invalid, "body.prefixes", "an IPv4-mapped IPv6 prefix is no resource: write the IPv4 prefix"},
	"certificate_authority_prefixes_valid": {problem.Invalid, "body.prefixes", "an IPv4-mapped IPv6 prefix is no resource: write the IPv4 prefix"},
	"bgp_session_local_not_mapped":         {problem.Invalid, "body.local_address", "an IPv4-mapped IPv6 address is none of a session: write the IPv4 address"},
	"api_token_source_cidrs_valid":         {problem.Invalid, "body.source_cidrs", "an IPv4-mapped IPv6 prefix is no caller's: write the IPv4 prefix"},
	"api_token_instants_valid":             {problem.Invalid, "body.expires_at", "a time lies in the years 1 to 9999 of UTC"},
	"revocation_certificate_id_key":        {problem.Conflict, "body.certificate_id", "this certificate is revoked already"},
	"bgp_session_key":                      {problem.Conflict, "body.remote_address", "the collector has a session with this address already: change that one"},
}

// existingKey is in PostgreSQL's detail of an exclusion: the prefix in the way.
var existingKey = regexp.MustCompile(`existing key \(.*\)=\(\d+, ([0-9a-fA-F.:/]+)\)`)

// databaseProblem turns what the database says into a problem that a client can
// act on. What is not known stays as it is: an internal error.
func databaseProblem(err error) error {
	var known *problem.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, errRollback) {
		return err
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refusedProblem(refused, err)
	}
	var (
		connect *pgconn.ConnectError
		network net.Error
	)
	if brokeOff(err) {
		return problem.New(problem.Unavailable, "the connection to the database broke off; if this was a change, it may have been made all the same: "+
			"read it again, or repeat the request with the same Idempotency-Key").Because(err)
	}
	if errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return unavailable(err)
	}
	return err
}

// unstorable are values that have the right form and that PostgreSQL cannot keep.
var unstorable = map[string]string{
	"22003": "a number is too large: write a smaller one",
	"22008": "a time or a duration is out of range: write one of these centuries",
	"22021": "a text holds the character NUL, or bytes that are not UTF-8: leave them out",
	"22P05": "a text holds the character NUL: leave it out",
}

func refusedProblem(refused *pgconn.PgError, err error) error {
	if v, ok := constraints[refused.ConstraintName]; ok {
		message := v.message
		if m := existingKey.FindStringSubmatch(refused.Detail); m != nil {
			message = fmt.Sprintf("it overlaps %s, which was created at the same time: try again", m[1])
		}
		e := problem.New(v.kind, "%s", message).Because(err)
		if v.location != "" {
			e.At(v.location, message, nil)
		}
		return e
	}
	switch refused.Code {
	case "40P01", "40001", "55P03": // deadlock, serialization, lock timeout
		return problem.New(problem.Unavailable, "others are changing the same resources: try again").Because(err)
	case "57014": // statement timeout
		return problem.New(problem.Unavailable, "the database took too long for this: ask for less at a time, or try again").Because(err)
	case "55000": // what a trigger refuses, in its own words
		return problem.New(problem.Conflict, "%s", refused.Message).Because(err)
	}
	if advice, ok := unstorable[refused.Code]; ok {
		return problem.New(problem.Invalid, "%s", advice).Because(err)
	}
	switch refused.Code[:2] {
	case "08", "53", "57", "25": // connection, resources, operator intervention, a standby
		return unavailable(err)
	}
	return err
}

// brokeOff tells whether the connection ended before the database had answered;
// that can be in the middle of a commit.
func brokeOff(err error) bool {
	var connect *pgconn.ConnectError
	if pgconn.SafeToRetry(err) || errors.As(err, &connect) {
		return false
	}
	return errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func unavailable(err error) error {
	return problem.New(problem.Unavailable, "the database cannot be reached now: try again").Because(err)
}
