package cli

import (
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"hubn/registry/client"
	"hubn/registry/rpsl"
)

// shownRefusals bounds the refused objects that a table shows; JSON has them all.
const shownRefusals = 1000

func (s *shell) importCommand() *cobra.Command {
	commands := append([]*cobra.Command{s.importRPSLCommand(), s.importCSVCommand(), s.importNDJSONCommand()}, s.importJobCommands()...)
	return s.group("import", "Import resources from files", "", commands...)
}

// imported is what `hubn import` prints: the Registry's answer and what was read.
type imported struct {
	client.ImportResult
	Files        int `json:"files"`
	SkippedFiles int `json:"skipped_files"`
	// OtherObjects are of classes that HubN does not take, by class.
	OtherObjects map[rpsl.Class]int `json:"other_objects,omitempty"`
}

func (s *shell) importRPSLCommand() *cobra.Command {
	var o client.ImportOptions
	cmd := &cobra.Command{
		Use:   "rpsl PATH...|-",
		Short: "Import RPSL objects: inetnum, inet6num, route, route6, aut-num",
		Long: `Read RPSL objects from files, folders with everything under them, gzip, or standard
input (-), and import them in one transaction: inetnum and inet6num with their name
servers (nserver, ds-rdata), holder (org, else mnt-by) and status, route, route6 and
aut-num. Objects of other classes are left out and counted. Files that do not begin
with an RPSL class are skipped and counted; it is an error if none does.

An object replaces the earlier state of its key. One with a delete: attribute is
removed. An object that cannot be taken is named with its line and the reason, and
the others are taken all the same; the exit status is then 1. Importing the same
input again changes nothing.`,
		Example: `  hubn import rpsl registry/data --own-nameserver '*.delegation-servers.example.net'
  hubn import rpsl --dry-run --prune ripe.db.inetnum.gz ripe.db.route.gz
  printf 'route: 192.0.2.0/24\norigin: AS64496\ndelete: moved\n' | hubn import rpsl -`,
		Args: s.arguments(1, -1, "a file or folder, or - for standard input"),
	}
	c := s.connect(cmd)
	out := OutputFlag(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.DryRun, "dry-run", false, "change nothing, and show what would change")
	flags.BoolVar(&o.Prune, "prune", false, "make the Registry equal to the input: prefixes, routes and AS numbers that it does not name are deleted; look with --dry-run first")
	flags.StringArrayVar(&o.OwnNameServers, "own-nameserver", nil,
		"HubN's own name server, or a pattern such as '*.example.net': a prefix whose name servers all match is hosted, not delegated (may be repeated)")
	flags.StringVar(&o.Reason, "reason", "", "why, for the change log")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, pattern := range o.OwnNameServers {
			if _, err := rpsl.ParseNameServerPattern(pattern); err != nil {
				return s.usage("--own-nameserver: %w", err)
			}
		}
		cl, err := c.open()
		if err != nil {
			return err
		}
		defer cl.Close()
		bar := newProgress(cmd.ErrOrStderr(), "reading")
		var tally rpsl.Tally
		result, err := cl.ImportRPSL(cmd.Context(), o, readObjects(args, cmd.InOrStdin(), &tally, bar),
			func(p client.ImportProgress) { bar.at(p.Stage, int64(p.Done), 0) })
		bar.end()
		if err != nil {
			return c.explain(err)
		}
		done := imported{result, tally.Files, tally.SkippedFiles, tally.Others}
		if err := out.Print(done, func(w io.Writer) { printImport(w, done) }); err != nil {
			return err
		}
		if len(result.Refused) > 0 {
			return s.Said
		}
		return nil
	}
	return cmd
}

// readObjects reads what the paths name; the first error ends it, since the rest
// would be missing from a pruning import.
func readObjects(paths []string, stdin io.Reader, tally *rpsl.Tally, bar *progress) iter.Seq2[client.ImportObject, error] {
	return func(yield func(client.ImportObject, error) bool) {
		var n atomic.Int64
		for raw, err := range rpsl.Walk(paths, stdin, tally) {
			if err != nil {
				yield(client.ImportObject{}, fmt.Errorf("%w; nothing was imported", err))
				return
			}
			bar.at("reading objects", n.Add(1), 0)
			if !yield(client.ImportObject{File: raw.File, Line: raw.Line, Text: raw.Text, Refused: raw.Refused}, nil) {
				return
			}
		}
		if tally.Files == 0 {
			yield(client.ImportObject{}, fmt.Errorf("no RPSL in %s: a file begins with an attribute such as inetnum, inet6num, route, route6 or aut-num; nothing was imported",
				strings.Join(paths, ", ")))
		}
	}
}

// printImport prints the summary, then what needs a person's eye.
func printImport(w io.Writer, r imported) {
	verb := func(done, would string) string {
		if r.DryRun {
			return would
		}
		return done
	}
	fmt.Fprintf(w, "%s read from %s", count(r.Objects, "object"), count(r.Files, "file"))
	if r.SkippedFiles > 0 {
		fmt.Fprintf(w, "; %s not RPSL and skipped", count(r.SkippedFiles, "file"))
	}
	if len(r.OtherObjects) > 0 {
		fmt.Fprintf(w, "; left out: %s", classCounts(r.OtherObjects))
	}
	fmt.Fprintf(w, "\n%s: %d added, %d changed, %d deleted; %s unchanged, %s refused (%s)\n",
		verb("imported", "dry run, nothing was changed"), r.Added, r.Changed, r.Deleted,
		count(r.Unchanged, "object"), count(len(r.Refused), "object"), span(r.Took.Duration()))
	if r.Added+r.Changed+r.Deleted > 0 {
		printImportKinds(w, r.ImportResult)
	}
	if r.DryRun {
		printImportChanges(w, r.ImportResult)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s%s %s: %s\n", place(n.File, n.Line), n.Class, n.Key, n.Text)
	}
	for i, f := range r.Refused {
		if i == shownRefusals {
			fmt.Fprintf(w, "… and %d more refused; --output json lists them all\n", len(r.Refused)-i)
			break
		}
		fmt.Fprintf(w, "refused: %s\n", refusalText(f))
	}
}

// classCounts lists classes that are not taken: 2 domain, 1 person.
func classCounts(others map[rpsl.Class]int) string {
	var parts []string
	for _, class := range slices.Sorted(maps.Keys(others)) {
		parts = append(parts, fmt.Sprintf("%d %s", others[class], class))
	}
	return strings.Join(parts, ", ")
}

func printImportKinds(w io.Writer, r client.ImportResult) {
	t := newTable(w, "KIND", "ADDED", "CHANGED", "DELETED", "EVENTS")
	for _, kind := range []client.Kind{client.KindOrganisation, client.KindASN, client.KindPrefix, client.KindAnycast} {
		counts := r.Kinds[kind]
		if counts == (client.ImportCounts{}) && r.Produced[kind] == 0 {
			continue
		}
		t.row(string(kind), fmt.Sprint(counts.Added), fmt.Sprint(counts.Changed), fmt.Sprint(counts.Deleted), fmt.Sprint(r.Produced[kind]))
	}
	t.end()
}

func printImportChanges(w io.Writer, r client.ImportResult) {
	signs := map[string]string{"add": "+", "change": "~", "delete": "-"}
	for _, change := range r.Changes {
		fmt.Fprintf(w, "%s %s %s", signs[change.Op], change.Kind, change.Label)
		switch {
		case change.Old != "" && change.New != "":
			fmt.Fprintf(w, ": %s → %s", change.Old, change.New)
		case change.Old+change.New != "":
			fmt.Fprintf(w, ": %s", change.Old+change.New)
		}
		fmt.Fprintln(w)
	}
	if r.MoreChanges > 0 {
		fmt.Fprintf(w, "… and %d more\n", r.MoreChanges)
	}
}

// refusalText is a refused object in one line.
func refusalText(f client.ImportRefusal) string {
	text := place(f.File, f.Line)
	if f.Class != "" {
		text += strings.TrimSpace(f.Class+" "+f.Key) + ": "
	}
	return text + f.Reason
}

// place is where something stands, for the beginning of a line.
func place(file string, line int) string {
	if file == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", file, line)
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
