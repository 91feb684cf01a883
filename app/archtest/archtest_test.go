package archtest

import (
	"bufio"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the module's folder, seen from this package.
const root = "../.."

// modulePath is the path of the project's Go module.
const modulePath = "hubn"

// leaves are the packages of app that modules may import.
var leaves = []string{"app/module", "app/problem", "app/seal"}

// wall is one forbidden import.
type wall struct {
	// from are the importing packages: a folder and everything below it; "."
	// is the whole project.
	from string
	// to is what they may not import: a folder of the project and everything
	// below it ("." is all of the project), or the path of another Go module.
	to string
	// except are folders: below from, which may import it all the same, or below
	// to, which may be imported.
	except []string
	reason string
}

var walls = []wall{
	{"registry", "outbox", []string{"outbox/event"},
		"the Registry writes the outbox through triggers and knows nothing of the worker"},
	{"registry", "app", leaves,
		"a module runs in any process: it is given what it needs and never reaches into the house"},
	{"outbox", "registry", []string{"registry/client"},
		"modules talk through the event path and the Registry's HTTP API, also in one process"},
	{"outbox", "app", leaves,
		"a module runs in any process: it is given what it needs and never reaches into the house"},
	{"registry/client", "registry", nil,
		"whoever imports the client would get the server and its schema with it"},
	{"registry/client", "schema", nil,
		"a client speaks HTTP and has no database"},
	{"registry/rpsl", "registry", []string{"registry/client"},
		"reading RPSL and planning an import is pure: values in, values out"},
	{"registry/rdap", "registry", nil,
		"writing RDAP documents and whois text is pure: rows in, documents out"},
	{"outbox/event", "outbox", nil,
		"whoever consumes events would get the worker with it"},
	{"schema", ".", []string{"app/embedded"},
		"SQL is below everything that uses it; only its test databases start a PostgreSQL"},
	{"app/module", ".", nil, "a leaf imports nothing of the project"},
	{"app/problem", ".", nil, "a leaf imports nothing of the project"},
	{"app/seal", ".", nil, "a leaf imports nothing of the project"},
	{"app/embedded", ".", nil, "a leaf imports nothing of the project"},
	{"app/cli", "registry", []string{"registry/client", "registry/rpsl", "registry/rdap"},
		"a client command works from any machine: it asks the Registry over HTTP, and reads files and documents"},
	{"app/cli", "outbox", []string{"outbox/event"},
		"commands on the outbox are calls of the Registry's API"},
	{"app/cli", "schema", nil,
		"a client command has no database"},
	{"app/demo", "registry", []string{"registry/client"},
		"the demo is put in as any client would"},
	{"app", "github.com/danielgtaylor/huma/v2", nil,
		"the house serves four documents of its own; the API belongs to the Registry"},
	{".", "github.com/spf13/cobra", []string{"app"},
		"commands are the house's: a module has no flags"},
	{".", "github.com/danielgtaylor/huma/v2", []string{"registry"},
		"there is one API, and it is the Registry's"},
	{".", "github.com/alicebob/miniredis/v2", []string{"app/embedded", "outbox/event/eventtest"},
		"modules know a Redis by its URL, not how it is run"},
	{".", "go.yaml.in/yaml/v3", []string{"app"},
		"the configuration is read in one place, strictly"},
}

// houseUsers may import package app itself: the program, and tests that run it.
var houseUsers = []string{".", "app/e2e"}

// imports maps the folder of every package to what its files, tests left out,
// import, each with one file that does.
type imports map[string]map[string]string

func readImports(t *testing.T) imports {
	t.Helper()
	all := imports{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && file != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		return all.add(file)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (all imports) add(file string) error {
	relative, err := filepath.Rel(root, file)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	folder := path.Dir(filepath.ToSlash(relative))
	if all[folder] == nil {
		all[folder] = map[string]string{}
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		all[folder][imported] = relative
	}
	return nil
}

// within tells whether a path is a folder or lies below it.
func within(p, folder string) bool {
	return folder == "." || p == folder || strings.HasPrefix(p, folder+"/")
}

func withinAny(p string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return within(p, f) })
}

// ofProject is the folder of a package of the project.
func ofProject(imported string) (folder string, ok bool) {
	if imported == modulePath {
		return ".", true
	}
	return strings.CutPrefix(imported, modulePath+"/")
}

// thirdParty tells whether a wall is against another Go module.
func (w wall) thirdParty() bool {
	first, _, _ := strings.Cut(w.to, "/")
	return strings.Contains(first, ".") && w.to != "."
}

// forbids tells whether the wall stands between a package and what it imports.
func (w wall) forbids(from, imported string) bool {
	if !within(from, w.from) || withinAny(from, w.except) {
		return false
	}
	if w.thirdParty() {
		return within(imported, w.to)
	}
	folder, ok := ofProject(imported)
	if !ok || !within(folder, w.to) || withinAny(folder, w.except) {
		return false
	}
	// Inside of a wall packages see each other.
	return !within(folder, w.from)
}

func TestNoImportCrossesAWall(t *testing.T) {
	for from, list := range readImports(t) {
		for imported, file := range list {
			for _, w := range walls {
				if w.forbids(from, imported) {
					t.Errorf("%s imports %s: %s", file, imported, w.reason)
				}
			}
			if imported == modulePath+"/app" && !slices.ContainsFunc(houseUsers, func(u string) bool {
				return from == u || u != "." && within(from, u)
			}) {
				t.Errorf("%s imports %s: only the program and its end-to-end tests know the house", file, imported)
			}
		}
	}
}

// TestWallsNameWhatExists keeps the table true: an entry about something that
// was renamed or removed would forbid nothing.
func TestWallsNameWhatExists(t *testing.T) {
	required := requiredModules(t)
	exists := func(folder string) bool {
		info, err := os.Stat(filepath.Join(root, folder))
		return err == nil && info.IsDir()
	}
	for _, w := range walls {
		if w.reason == "" {
			t.Errorf("the wall from %s to %s has no reason", w.from, w.to)
		}
		for _, folder := range append([]string{w.from}, w.except...) {
			if !exists(folder) {
				t.Errorf("the wall from %s to %s names %s, which does not exist", w.from, w.to, folder)
			}
		}
		if w.thirdParty() && !required[w.to] {
			t.Errorf("the wall from %s names %s, which go.mod does not require", w.from, w.to)
		}
		if !w.thirdParty() && !exists(w.to) {
			t.Errorf("the wall from %s names %s, which does not exist", w.from, w.to)
		}
	}
}

func requiredModules(t *testing.T) map[string]bool {
	t.Helper()
	file, err := os.Open(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	required := map[string]bool{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "require "))
		if len(fields) >= 2 && strings.HasPrefix(fields[1], "v") {
			required[fields[0]] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return required
}

// layout is everything that may stand at the top of the project.
var layout = []string{
	"main.go", "app", "registry", "outbox", "roa", "dns", "lookingglass", "schema",
	"config.example.yaml", "go.mod", "go.sum", "README.md", "Makefile", "LICENSE", "CHANGELOG.md",
	"bin", // what `make build` builds; not committed
}

func TestTopLevelHoldsTheAgreedNamesOnly(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, ".") && !slices.Contains(layout, name) {
			t.Errorf("%s stands at the top level: the layout is %v", name, layout)
		}
	}
}

// TestWallForbidsWhatItSays checks the checker: an import test that can never
// fail keeps nothing.
func TestWallForbidsWhatItSays(t *testing.T) {
	modules := wall{"registry", "outbox", []string{"outbox/event"}, ""}
	leaf := wall{"app/module", ".", nil, ""}
	client := wall{"registry/client", "registry", nil, ""}
	cobra := wall{".", "github.com/spf13/cobra", []string{"app"}, ""}
	cases := []struct {
		name           string
		wall           wall
		from, imported string
		want           bool
	}{
		{"another module", modules, "registry", "hubn/outbox", true},
		{"from a folder below", modules, "registry/rpsl", "hubn/outbox", true},
		{"the excepted package", modules, "registry", "hubn/outbox/event", false},
		{"a name with the same beginning", modules, "registry", "hubn/outboxes", false},
		{"another importer", modules, "app", "hubn/outbox", false},
		{"a leaf and the project", leaf, "app/module", "hubn/app/problem", true},
		{"a leaf and the standard library", leaf, "app/module", "net/http", false},
		{"a part and its whole", client, "registry/client", "hubn/registry", true},
		{"a part and another part", client, "registry/client", "hubn/registry/rpsl", true},
		{"a library", cobra, "registry", "github.com/spf13/cobra", true},
		{"a package of a library", cobra, "outbox/event", "github.com/spf13/cobra/doc", true},
		{"the excepted importer", cobra, "app/embedded", "github.com/spf13/cobra", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := c.wall.forbids(c.from, c.imported); got != c.want {
				t.Errorf("%s imports %s: forbidden is %v, want %v", c.from, c.imported, got, c.want)
			}
		})
	}
}
