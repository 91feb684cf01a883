package registry

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hubn/app/problem"
)

// role is what a token may be: everywhere, or by a grant on an organisation or a
// prefix with all that lies in it.
type role string

// The roles.
const (
	roleAdmin     role = "admin"     // everything
	roleOperator  role = "operator"  // changes nouns, orders modules, operates the outbox
	roleAuthority role = "authority" // certificate authorities, certificates, revocations
	roleAllocator role = "allocator" // takes free space
	roleMember    role = "member"    // changes what its organisation holds
	roleAuditor   role = "auditor"   // reads, also who changed what and who may
	roleViewer    role = "viewer"    // reads
	roleModule    role = "module"    // reads sources and speaks for one module
)

var roles = []role{roleAdmin, roleOperator, roleAuthority, roleAllocator, roleMember, roleAuditor, roleViewer, roleModule}

// wholeRoles are what a token may be everywhere; a member or an allocator of
// everything would be an operator.
var wholeRoles = []role{roleAdmin, roleOperator, roleAuthority, roleAuditor, roleViewer, roleModule}

// grantRoles are what a grant may give.
var grantRoles = []role{roleOperator, roleAuthority, roleAllocator, roleMember, roleAuditor, roleViewer}

// permission is what an operation needs.
type permission string

// The permissions.
const (
	readNouns     permission = "read nouns"
	readContacts  permission = "read contacts"
	readHistory   permission = "read the change log"
	writeNouns    permission = "write nouns"
	allocate      permission = "allocate free space"
	releaseSpace  permission = "release quarantined space"
	certify       permission = "certify" // certificate authorities, certificates, revocations
	readPasswords permission = "read passwords of sessions"
	readSources   permission = "read sources"
	report        permission = "report" // reports, observations, heartbeats, regressions
	readState     permission = "read state"
	wait          permission = "make barriers"
	command       permission = "give commands"
	readCommands  permission = "read commands"
	lease         permission = "hold leases"
	forgetModules permission = "forget modules"
	importData    permission = "import"
	exportData    permission = "export"
	readOutbox    permission = "read the outbox"
	operateOutbox permission = "operate the outbox"
	readTokens    permission = "read tokens"
	manageTokens  permission = "manage tokens"
)

// access says who may do what; together with reaches it is the only place that
// does. What a module may do in its own name only is guarded by mayActAs in addition.
var access = map[permission][]role{
	readNouns:     {roleAdmin, roleOperator, roleAuthority, roleAllocator, roleMember, roleAuditor, roleViewer, roleModule},
	readContacts:  {roleAdmin, roleOperator, roleMember, roleAuditor, roleViewer, roleModule},
	readHistory:   {roleAdmin, roleOperator, roleAuditor},
	writeNouns:    {roleAdmin, roleOperator, roleMember},
	allocate:      {roleAdmin, roleOperator, roleAllocator, roleMember},
	releaseSpace:  {roleAdmin, roleOperator},
	certify:       {roleAdmin, roleOperator, roleAuthority},
	readPasswords: {roleModule}, // the looking glass alone: getPassword
	readSources:   {roleAdmin, roleOperator, roleAuditor, roleViewer, roleModule},
	report:        {roleAdmin, roleModule},
	readState:     {roleAdmin, roleOperator, roleAuthority, roleAllocator, roleMember, roleAuditor, roleViewer, roleModule},
	wait:          {roleAdmin, roleOperator, roleAuthority, roleAllocator, roleMember, roleAuditor, roleViewer},
	command:       {roleAdmin, roleOperator},
	readCommands:  {roleAdmin, roleOperator, roleAuditor, roleViewer, roleModule},
	lease:         {roleAdmin, roleModule},
	forgetModules: {roleAdmin, roleOperator},
	importData:    {roleAdmin, roleOperator},
	exportData:    {roleAdmin, roleOperator, roleAuditor, roleViewer, roleModule},
	readOutbox:    {roleAdmin, roleOperator, roleAuditor, roleViewer},
	operateOutbox: {roleAdmin, roleOperator},
	readTokens:    {roleAdmin, roleAuditor},
	manageTokens:  {roleAdmin},
}

// reach is how far a grant carries a permission that its role has.
type reach int

const (
	// nowhere: the permission is not about one object; only the token's own
	// roles give it. This is the rule for what reaches does not name.
	nowhere reach = iota
	// inside: on what the grant's organisation holds or its prefix covers.
	inside
	// anywhere: what RDAP tells the world anyway, whoever holds it.
	anywhere
)

var reaches = map[permission]reach{
	readNouns:    anywhere,
	readState:    anywhere,
	wait:         anywhere,
	readContacts: inside,
	readHistory:  inside,
	writeNouns:   inside,
	allocate:     inside,
	releaseSpace: inside,
	certify:      inside,
}

// grant gives a role on what an organisation holds, or on a prefix with all that
// lies in it.
type grant struct {
	Role         role         `json:"role"`
	Organisation int64        `json:"organisation"` // 0 with a prefix
	Prefix       netip.Prefix `json:"prefix"`
}

// target is what an operation touches; grants are compared with it. A target
// without organisations and prefixes is the whole Registry's: no grant reaches it.
type target struct {
	// organisations are the holders of the object before and after a change. 0 is
	// nobody: then it counts as held by who holds the space around its prefixes.
	organisations []int64
	// prefixes are the space that the operation touches.
	prefixes []netip.Prefix
}

// principal is who asks.
type principal struct {
	// Name is the actor in the change log.
	Name string
	// TokenID is the public part of the token; empty for a token of the process.
	TokenID string
	Roles   []role
	Grants  []grant
	// Module is what a token with the role module speaks for.
	Module string
}

// may tells whether the principal has a permission everywhere, whatever it is about.
func (p principal) may(needs permission) bool {
	if slices.ContainsFunc(p.Roles, func(r role) bool { return slices.Contains(access[needs], r) }) {
		return true
	}
	return reaches[needs] == anywhere && len(p.giving(needs)) > 0
}

// giving are the grants whose role has the permission.
func (p principal) giving(needs permission) []grant {
	var giving []grant
	for _, g := range p.Grants {
		if slices.Contains(access[needs], g.Role) {
			giving = append(giving, g)
		}
	}
	return giving
}

// mayOn tells whether the principal has a permission on a target whose holders are
// all named: on every one of them, or on all of its space.
func (p principal) mayOn(needs permission, t target) bool {
	if p.may(needs) {
		return true
	}
	if reaches[needs] != inside {
		return false
	}
	giving := p.giving(needs)
	held := func(organisation int64) bool {
		return organisation != 0 && slices.ContainsFunc(giving, func(g grant) bool { return g.Organisation == organisation })
	}
	covered := func(space netip.Prefix) bool {
		return slices.ContainsFunc(giving, func(g grant) bool { return covers(g.Prefix, space) })
	}
	return len(t.organisations) > 0 && all(t.organisations, held) || len(t.prefixes) > 0 && all(t.prefixes, covered)
}

// covers tells whether p is or lies in the outer prefix.
func covers(outer, p netip.Prefix) bool {
	return outer.IsValid() && p.IsValid() && outer.Bits() <= p.Bits() && outer.Contains(p.Addr())
}

func all[T any](items []T, holds func(T) bool) bool {
	return !slices.ContainsFunc(items, func(x T) bool { return !holds(x) })
}

// allow is nil or the refusal of a permission that the principal has nowhere.
func (p principal) allow(needs permission) error {
	if p.may(needs) || reaches[needs] == inside && len(p.giving(needs)) > 0 {
		return nil
	}
	return problem.New(problem.Forbidden, "%s may not %s: that needs a token with %s", p.Name, needs, neededRole(needs))
}

// neededRole says which roles have a permission and how they may be had.
func neededRole(needs permission) string {
	var whole, granted []string
	for _, r := range access[needs] {
		if slices.Contains(wholeRoles, r) {
			whole = append(whole, string(r))
		}
		if reaches[needs] == inside && slices.Contains(grantRoles, r) {
			granted = append(granted, string(r))
		}
	}
	text := "the role " + strings.Join(whole, " or ")
	if len(granted) > 0 {
		text += ", or a grant as " + strings.Join(granted, " or ")
	}
	return text
}

// allowOn is nil or the refusal: the token's own roles cover everything, a grant
// its organisation or subtree.
func (w *writing) allowOn(ctx context.Context, needs permission, t target) error {
	p := callOf(ctx).principal
	if p.may(needs) {
		return nil
	}
	named, err := holdersOf(ctx, w, t)
	if err != nil {
		return err
	}
	if p.mayOn(needs, named) {
		return nil
	}
	return problem.New(problem.Forbidden, "%s may not %s%s: that needs a token with %s there (hubn grant create)",
		p.Name, needs, t.where(), neededRole(needs))
}

func (t target) where() string {
	switch {
	case len(t.prefixes) > 0:
		return fmt.Sprintf(" in %s", t.prefixes[len(t.prefixes)-1])
	case slices.ContainsFunc(t.organisations, func(id int64) bool { return id != 0 }):
		return fmt.Sprintf(" of the organisation %d", slices.Max(t.organisations))
	}
	return " for the whole Registry"
}

// The nearest prefix around that somebody holds.
const sqlSpaceHolder = `
SELECT coalesce((
  SELECT organisation_id
  FROM registry.prefix
  WHERE prefix = ANY($1::cidr[])
    AND organisation_id IS NOT NULL
  ORDER BY masklen(prefix) DESC
  LIMIT 1), 0)`

// holdersOf replaces nobody by who holds the space around.
func holdersOf(ctx context.Context, q querier, t target) (target, error) {
	if len(t.prefixes) == 0 || !slices.Contains(t.organisations, 0) {
		return t, nil
	}
	named := target{prefixes: t.prefixes}
	for _, id := range t.organisations {
		if id != 0 {
			named.organisations = append(named.organisations, id)
		}
	}
	for _, p := range t.prefixes {
		var holder int64
		if err := q.QueryRow(ctx, sqlSpaceHolder, covering(p)).Scan(&holder); err != nil {
			return t, err
		}
		named.organisations = append(named.organisations, holder)
	}
	return named, nil
}

// holderID is the id of a holder, 0 for nobody.
func holderID(holder *int64) int64 {
	if holder == nil {
		return 0
	}
	return *holder
}

// mayActAs guards what a module does in its own name: a module speaks for itself
// alone; an admin may speak for any.
func (p principal) mayActAs(module string) error {
	if slices.Contains(p.Roles, roleAdmin) || slices.Contains(p.Roles, roleModule) && p.Module == module {
		return nil
	}
	return problem.New(problem.Forbidden, "%s may not speak for the module %q: use that module's own token", p.Name, module)
}

// id tells principals apart: names need not be unique.
func (p principal) id() string {
	if p.TokenID != "" {
		return p.TokenID
	}
	return "static:" + p.Name
}
