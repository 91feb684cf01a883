package registry

import (
	"slices"
	"strings"

	"hubn/app/problem"
)

// role is what a token may be.
type role string

// The roles. The schema knows more of them, for grants on organisations and
// subtrees; a token cannot have those yet.
const (
	roleAdmin    role = "admin"    // everything
	roleOperator role = "operator" // changes nouns, orders modules, operates the outbox
	roleViewer   role = "viewer"   // reads
	roleModule   role = "module"   // reads sources and speaks for one module
)

var roles = []role{roleAdmin, roleOperator, roleViewer, roleModule}

// permission is what an operation needs.
type permission string

// The permissions.
const (
	readNouns     permission = "read nouns"
	writeNouns    permission = "write nouns"
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
	manageTokens  permission = "manage tokens"
)

// access says who may do what; it is the only place that does. What a module may
// do in its own name only is guarded by mayActAs in addition.
var access = map[permission][]role{
	readNouns:     {roleAdmin, roleOperator, roleViewer, roleModule},
	writeNouns:    {roleAdmin, roleOperator},
	readSources:   {roleAdmin, roleOperator, roleViewer, roleModule},
	report:        {roleAdmin, roleModule},
	readState:     {roleAdmin, roleOperator, roleViewer, roleModule},
	wait:          {roleAdmin, roleOperator, roleViewer},
	command:       {roleAdmin, roleOperator},
	readCommands:  {roleAdmin, roleOperator, roleViewer, roleModule},
	lease:         {roleAdmin, roleModule},
	forgetModules: {roleAdmin, roleOperator},
	importData:    {roleAdmin, roleOperator},
	exportData:    {roleAdmin, roleOperator, roleViewer, roleModule},
	readOutbox:    {roleAdmin, roleOperator, roleViewer},
	operateOutbox: {roleAdmin, roleOperator},
	manageTokens:  {roleAdmin},
}

// principal is who asks.
type principal struct {
	// Name is the actor in the change log.
	Name string
	// TokenID is the public part of the token; empty for a token of the process.
	TokenID string
	Roles   []role
	// Module is what a token with the role module speaks for.
	Module string
}

// may tells whether the principal has a permission.
func (p principal) may(needs permission) bool {
	return slices.ContainsFunc(p.Roles, func(r role) bool { return slices.Contains(access[needs], r) })
}

// allow is nil or the refusal of a permission.
func (p principal) allow(needs permission) error {
	if p.may(needs) {
		return nil
	}
	var able []string
	for _, r := range access[needs] {
		able = append(able, string(r))
	}
	return problem.New(problem.Forbidden, "%s may not %s: that needs a token with the role %s", p.Name, needs, strings.Join(able, " or "))
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
