package registry

import (
	"go/ast"
	"go/constant"
	"go/parser"
	gotoken "go/token"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"hubn/registry/client"
	"hubn/schema/schematest"
)

var statement = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\s`)

// TestEveryStatementPrepares prepares each SQL statement of the package against
// the migrated schema, as the role that runs it. A statement is a constant, or a
// literal, that begins like one.
func TestEveryStatementPrepares(t *testing.T) {
	all := packageStatements(t)
	if len(all) < 50 {
		t.Errorf("only %d statements were found", len(all))
	}
	conn := schematest.New(t).Conn(t, databaseRole)
	// Some statements read the staging table that an import makes for itself.
	if _, err := conn.Exec(t.Context(), strings.ReplaceAll(sqlImportStage, "ON COMMIT DROP", "")); err != nil {
		t.Fatal(err)
	}
	for where, sql := range all {
		if _, err := conn.Prepare(t.Context(), "", sql); err != nil {
			t.Errorf("%s: %v\n%s", where, err, sql)
		}
	}
}

// packageStatements finds the statements in the package's source, by position.
func packageStatements(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	fset := gotoken.NewFileSet()
	var files []*ast.File
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	constants := map[string]string{}
	parts := map[string]bool{} // constants that others are made of: those are prepared
	all := map[string]string{}
	collect := func(spec *ast.ValueSpec) {
		for i, value := range spec.Values {
			sql, ok := constantText(value, constants)
			if !ok || i >= len(spec.Names) {
				continue
			}
			constants[spec.Names[i].Name] = sql
			ast.Inspect(value, func(n ast.Node) bool {
				if part, ok := n.(*ast.Ident); ok {
					parts[part.Name] = true
				}
				return true
			})
			if statement.MatchString(sql) && !strings.Contains(sql, "%s") {
				all[spec.Names[i].Name+" at "+fset.Position(value.Pos()).String()] = sql
			}
		}
	}
	// Twice, so that a constant may stand before those that it is made of.
	for range 2 {
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				if decl, ok := n.(*ast.GenDecl); ok && decl.Tok == gotoken.CONST {
					for _, spec := range decl.Specs {
						collect(spec.(*ast.ValueSpec))
					}
				}
				return true
			})
		}
	}
	maps.DeleteFunc(all, func(where, _ string) bool {
		name, _, _ := strings.Cut(where, " ")
		return parts[name]
	})
	return all
}

// constantText is the value of a constant string expression.
func constantText(e ast.Expr, constants map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != gotoken.STRING {
			return "", false
		}
		return constant.StringVal(constant.MakeFromLiteral(e.Value, e.Kind, 0)), true
	case *ast.Ident:
		s, ok := constants[e.Name]
		return s, ok
	case *ast.ParenExpr:
		return constantText(e.X, constants)
	case *ast.BinaryExpr:
		left, okLeft := constantText(e.X, constants)
		right, okRight := constantText(e.Y, constants)
		return left + right, okLeft && okRight && e.Op == gotoken.ADD
	}
	return "", false
}

// TestEveryFilterPrepares prepares the lists with each filter alone and with all.
func TestEveryFilterPrepares(t *testing.T) {
	conn := schematest.New(t).Conn(t, databaseRole)
	prefix := netip.MustParsePrefix("192.0.2.0/24")
	network := Network{given{text: "192.0.2.0/24"}, prefix}
	page := func(cursor string) PageParams { return PageParams{After: cursor} }
	lists := map[string]interface{ query() (*query, error) }{
		"organisations":       organisationList{&listOrganisationsInput{}, true},
		"organisations, all":  organisationList{&listOrganisationsInput{PageParams: page(cursor("organisations", 1)), Text: "x"}, true},
		"organisations, part": organisationList{&listOrganisationsInput{Text: "x"}, false},
		"asns":                &listASNsInput{},
		"asns, by id":         &listASNsInput{Organisation: "1"},
		"asns, all":           &listASNsInput{PageParams: page(cursor("asns", 1)), Organisation: "X", Text: "x"},
		"prefixes":            &listPrefixesInput{},
		"prefixes, covers":    &listPrefixesInput{Covers: network},
		"prefixes, within":    &listPrefixesInput{Within: Prefix(network)},
		"prefixes, exact":     &listPrefixesInput{Exact: Prefix(network)},
		"prefixes, longest":   &listPrefixesInput{Longest: network},
		"prefixes, after":     &listPrefixesInput{PageParams: page(cursor("prefixes", prefix))},
		"prefixes, all":       &listPrefixesInput{page(cursor("prefixes", prefix)), network, Prefix(network), Prefix(network), network, 1, "X", "reserved", "active", ASN{given{text: "1"}, 1}, "x"},
		"ptr-records":         &listPTRRecordsInput{},
		"ptr-records, all":    &listPTRRecordsInput{page(cursor("ptr-records", prefix.Addr(), "a")), Address{value: prefix.Addr()}, network, "x"},
		"anycast":             &listAnycastInput{},
		"anycast, all":        &listAnycastInput{page(cursor("anycast", prefix, 1)), network, Prefix(network), Prefix(network), "X", "x"},
		"quarantine":          &listQuarantineInput{},
		"quarantine, all":     &listQuarantineInput{page(cursor("quarantine", prefix, 1)), Prefix(network)},
		"utilisation":         &listUtilisationInput{Limit: 1},
		"utilisation, all":    &listUtilisationInput{1, cursor("utilisation", prefix), Prefix(network), "X"},
		"changes":             changeList{&listChangesInput{}, nil, principal{Roles: []role{roleAuditor}}},
		"changes, all": changeList{&listChangesInput{page(cursor("changes", time.Now(), 1)), "x", "a", "t", "r", "update", time.Now(), time.Now()},
			[]client.Resource{{Kind: client.KindPrefix, Key: "1"}}, principal{Grants: []grant{{Role: roleAuditor, Organisation: 1}}}},
		"tokens":               &listTokensInput{},
		"imports":              &listImportsInput{},
		"imports, a page more": &listImportsInput{page(cursor("imports", 1))},
		"tokens, a page more":  &listTokensInput{page(cursor("tokens", 1))},
		"grants":               &listGrantsInput{},
		"grants, all":          &listGrantsInput{page(cursor("grants", 1)), 1, "viewer", "X", network},
	}
	maps.Copy(lists, authorityLists())
	for name, list := range lists {
		q, err := list.query()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rows, err := conn.Query(t.Context(), q.String(), q.args...)
		if err == nil {
			rows.Close()
			err = rows.Err()
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, q)
		}
	}
}

// changeList is the change log for a caller, of some resources.
type changeList struct {
	*listChangesInput
	resources []client.Resource
	principal
}

func (l changeList) query() (*query, error) {
	return l.listChangesInput.query(l.resources, l.principal)
}

// organisationList is the list for those who see contacts and for those who do not.
type organisationList struct {
	*listOrganisationsInput
	contacts bool
}

func (l organisationList) query() (*query, error) { return l.listOrganisationsInput.query(l.contacts) }
