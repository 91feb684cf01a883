package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Output is how a command prints.
type Output struct {
	format string
	cmd    *cobra.Command
}

// OutputFlag adds --output to a command that prints.
func OutputFlag(cmd *cobra.Command) *Output {
	o := &Output{format: "table", cmd: cmd}
	cmd.Flags().VarP(o, "output", "o", "table, or json for scripts")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return o
}

// String is the format's name.
func (o *Output) String() string { return o.format }

// Set takes one of the formats.
func (o *Output) Set(text string) error {
	if text != "table" && text != "json" {
		return fmt.Errorf("write table or json")
	}
	o.format = text
	return nil
}

// Type names the flag's value in help.
func (o *Output) Type() string { return "table|json" }

// json tells whether the output is for a program.
func (o *Output) json() bool { return o.format == "json" }

// Print prints a value as JSON, or what table makes of it.
func (o *Output) Print(v any, table func(io.Writer)) error {
	if o.json() {
		encoder := json.NewEncoder(o.cmd.OutOrStdout())
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v)
	}
	table(o.cmd.OutOrStdout())
	return nil
}

// remark is said on standard error, beside the output.
func (o *Output) remark(format string, args ...any) {
	fmt.Fprintf(o.cmd.ErrOrStderr(), format+"\n", args...)
}

// table writes rows in columns. The first row is the head.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(head) > 0 {
		t.row(head...)
	}
	return t
}

// row adds a row; empty cells are shown as a dash.
func (t table) row(cells ...string) {
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
		cells[i] = strings.ReplaceAll(cells[i], "\t", " ")
	}
	fmt.Fprintln(t, strings.Join(cells, "\t"))
}

func (t table) end() { _ = t.Flush() }

// pairs writes names and values below each other; empty values are left out.
func pairs(w io.Writer, rows ...[2]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
		}
	}
	_ = t.Flush()
}

// moment is a time as people read it, in their own zone.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// span is a duration as people read it.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// isTerminal tells whether a person watches.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
