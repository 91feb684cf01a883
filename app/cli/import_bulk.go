package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

const (
	// jobPoll is the pause between two looks at a job, for a bar that moves.
	jobPoll = 250 * time.Millisecond
	// jobEnd is how long a cancelled job may take to end.
	jobEnd = 15 * time.Second
)

// bulkKinds are the kinds that CSV can carry.
var bulkKinds = []string{"organisation", "asn", "prefix", "ptr", "anycast"}

func (s *shell) importCSVCommand() *cobra.Command {
	var o client.BulkImport
	o.CSV = true
	var kind string
	cmd := s.bulkCommand(&o, &cobra.Command{
		Use:   "csv FILE|-",
		Short: "Import rows of CSV: prefixes, PTR records, AS numbers, organisations, anycast",
		Long: `Import the rows of a CSV file as a job of the Registry: all of them, or none. The
header names the columns in any order, and tells what the rows are; the columns are
those of 'hubn export csv KIND'. Empty fields are left out. Without the column
announced an origin is announced; without reverse, name servers are delegated to.

  prefix        prefix, organisation, kind, status, name, announced (yes or no),
                origin, max_length, reverse, name_servers, ds, zone_cut, …
  ptr           address, target, ttl
  asn           number, organisation, name
  organisation  handle, name, contact
  anycast       prefix, service, organisation, origins (AS64496 AS64497/26)

Name servers are parted by blanks, DS records by semicolons. Every row that cannot
be taken is named at once, with its line, column and reason. Ctrl-C cancels the job,
which then has written nothing.`,
		Example: `  hubn import csv customers.csv --dry-run
  hubn import csv --kind ptr hosts.csv --reason 'move to the new data centre'`,
	})
	cmd.Flags().StringVar(&kind, "kind", "", "what the rows are, where the header does not tell: "+strings.Join(bulkKinds, ", "))
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(bulkKinds, cobra.ShellCompDirectiveNoFileComp))
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if kind != "" && !slices.Contains(bulkKinds, kind) {
			return s.usage("--kind %q is not known: write %s", kind, strings.Join(bulkKinds, ", "))
		}
		o.Kind = client.Kind(kind)
		return run(cmd, args)
	}
	return cmd
}

func (s *shell) importNDJSONCommand() *cobra.Command {
	return s.bulkCommand(new(client.BulkImport), &cobra.Command{
		Use:   "ndjson FILE|-",
		Short: "Import lines of JSON of any kind",
		Long: `Import lines of {"kind": "prefix", "body": {…}} as a job of the Registry: all of
them, or none. The body is what the API takes of that kind; 'hubn export ndjson'
writes such lines.

Every line that cannot be taken is named at once, with the field and the reason.
Ctrl-C cancels the job, which then has written nothing.`,
		Example: `  hubn export ndjson | hubn import ndjson --url https://other.example.net -
  hubn import ndjson --existing skip registry.ndjson`,
	})
}

// bulkCommand is a command that imports a file as a job.
func (s *shell) bulkCommand(o *client.BulkImport, cmd *cobra.Command) *cobra.Command {
	cmd.Args = s.arguments(1, 1, "a file, or - for standard input")
	c := s.connect(cmd)
	out := OutputFlag(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.DryRun, "dry-run", false, "check and write everything, and keep nothing of it")
	flags.StringVar(&o.Existing, "existing", "refuse", "what to do with what is there already: refuse it, or skip it")
	flags.StringVar(&o.Reason, "reason", "", "why, for the change log")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.Existing != "refuse" && o.Existing != "skip" {
			return s.usage("--existing %q is not known: write refuse or skip", o.Existing)
		}
		in := cmd.InOrStdin()
		if args[0] != "-" {
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			in = file
		}
		cl, err := c.open()
		if err != nil {
			return err
		}
		defer cl.Close()
		bar := newProgress(cmd.ErrOrStderr(), "sending")
		job, err := cl.StartImport(cmd.Context(), *o, in)
		if err == nil {
			job, err = followJob(cmd.Context(), cl, job, bar)
		}
		bar.end()
		if err != nil {
			return c.explain(err)
		}
		if err := out.Print(job, func(w io.Writer) { printJob(w, job) }); err != nil {
			return err
		}
		if job.State != client.JobDone {
			return s.Said
		}
		return nil
	}
	return cmd
}

// followJob waits for a job's end; it cancels the job when ctx ends.
func followJob(ctx context.Context, cl *client.Client, job client.ImportJob, bar *progress) (client.ImportJob, error) {
	job, err := watchJob(ctx, cl, job, bar)
	if ctx.Err() == nil {
		return job, err
	}
	after, stop := context.WithTimeout(context.WithoutCancel(ctx), jobEnd)
	defer stop()
	if _, err := cl.CancelImport(after, job.ID); err != nil {
		return job, fmt.Errorf("cancel the import %d: %w", job.ID, err)
	}
	return watchJob(after, cl, job, bar)
}

// watchJob shows a job's progress until it is over.
func watchJob(ctx context.Context, cl *client.Client, job client.ImportJob, bar *progress) (client.ImportJob, error) {
	ticker := time.NewTicker(jobPoll)
	defer ticker.Stop()
	for job.State == client.JobRunning {
		bar.at(job.Stage, int64(job.Done), int64(job.Total))
		select {
		case <-ctx.Done():
			return job, ctx.Err()
		case <-ticker.C:
		}
		next, err := cl.ImportJob(ctx, job.ID)
		if err != nil {
			return job, fmt.Errorf("the import %d goes on in the Registry (hubn import show %d): %w", job.ID, job.ID, err)
		}
		job = next
	}
	return job, nil
}

func (s *shell) importJobCommands() []*cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List jobs of import, the newest first", Args: s.arguments(0, 0, "")}
	c := s.connect(list)
	out := OutputFlag(list)
	limit := list.Flags().Int("limit", 20, "how many")
	list.RunE = func(cmd *cobra.Command, _ []string) error {
		cl, err := c.open()
		if err != nil {
			return err
		}
		defer cl.Close()
		page, err := cl.ImportJobs(cmd.Context(), "", *limit)
		if err != nil {
			return c.explain(err)
		}
		return out.Print(page.Items, func(w io.Writer) { printJobs(w, page.Items) })
	}
	show := s.jobCommand("show ID", "Show a job of import: its progress, or its wrong rows",
		func(ctx context.Context, cl *client.Client, id int64) (client.ImportJob, error) {
			return cl.ImportJob(ctx, id)
		})
	cancel := s.jobCommand("cancel ID", "Cancel a job of import that runs",
		func(ctx context.Context, cl *client.Client, id int64) (client.ImportJob, error) {
			return cl.CancelImport(ctx, id)
		})
	return []*cobra.Command{list, show, cancel}
}

func (s *shell) jobCommand(use, short string, do func(context.Context, *client.Client, int64) (client.ImportJob, error)) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: s.arguments(1, 1, "the job's number")}
	c := s.connect(cmd)
	out := OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || id < 1 {
			return s.usage("%q is not the number of a job: hubn import list shows them", args[0])
		}
		cl, err := c.open()
		if err != nil {
			return err
		}
		defer cl.Close()
		job, err := do(cmd.Context(), cl, id)
		if err != nil {
			return c.explain(err)
		}
		return out.Print(job, func(w io.Writer) { printJob(w, job) })
	}
	return cmd
}

func printJobs(w io.Writer, jobs []client.ImportJob) {
	t := newTable(w, "JOB", "STATE", "FORMAT", "ROWS", "ERRORS", "ACTOR", "STARTED")
	for _, j := range jobs {
		state := string(j.State)
		if j.DryRun {
			state += " (dry run)"
		}
		t.row(fmt.Sprint(j.ID), state, j.Format, fmt.Sprintf("%d of %d", j.Done, j.Total), fmt.Sprint(j.ErrorsCount), j.Actor, j.CreatedAt.Format(time.RFC3339))
	}
	t.end()
}

// printJob prints how a job ended, then every row that it could not take.
func printJob(w io.Writer, j client.ImportJob) {
	switch {
	case j.State == client.JobRunning:
		fmt.Fprintf(w, "import %d is running: %s, %d of %d rows\n", j.ID, j.Stage, j.Done, j.Total)
	case j.State == client.JobDone && j.DryRun:
		fmt.Fprintf(w, "import %d: dry run, nothing was changed; %s can be imported\n", j.ID, count(j.Total, "row"))
	case j.State == client.JobDone:
		fmt.Fprintf(w, "import %d: %s imported\n", j.ID, count(j.Total, "row"))
	case j.State == client.JobCancelled:
		fmt.Fprintf(w, "import %d was cancelled; nothing was written\n", j.ID)
	default:
		fmt.Fprintf(w, "import %d failed; nothing was written\n", j.ID)
	}
	for _, kind := range slices.Sorted(maps.Keys(j.Kinds)) {
		fmt.Fprintf(w, "  %s: %s\n", kind, count(j.Kinds[kind], "row"))
	}
	if j.Skipped > 0 {
		fmt.Fprintf(w, "%s there already and skipped\n", count(j.Skipped, "row"))
	}
	if j.Error != "" {
		fmt.Fprintf(w, "%s\n", j.Error)
	}
	for i, e := range j.Errors {
		if i == shownRefusals {
			break
		}
		fmt.Fprintf(w, "%s\n", rowError(e))
	}
	if more := j.ErrorsCount - min(len(j.Errors), shownRefusals); more > 0 {
		fmt.Fprintf(w, "… and %d more; --output json lists those that the job keeps\n", more)
	}
}

// rowError is a wrong row in one line: line 12: prefix: origin: what is wrong.
func rowError(e client.ImportError) string {
	parts := []string{}
	if e.File != "" {
		parts = append(parts, e.File)
	}
	for _, part := range []string{"line " + strconv.Itoa(e.Line), e.Kind, e.Field} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ") + ": " + e.Reason
}
