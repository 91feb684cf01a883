package registry

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"hubn/app/problem"
	"hubn/registry/client"
)

// bulkLine bounds one line of NDJSON: a certificate request or a thousand origins
// take some 100 kB.
const bulkLine = 1 << 20

// byteOrderMark begins files of programs that mark UTF-8 so.
const byteOrderMark = "\xef\xbb\xbf"

// full refuses more rows than one import may have.
func (b *bulkRows) full() error {
	if b.rows++; b.rows > bulkRowsMost {
		return problem.New(problem.TooLarge, "an import holds at most %d rows: import it in parts", bulkRowsMost)
	}
	return nil
}

// readNDJSON reads lines of {"kind", "body"}. An error ends the import; what is
// wrong with a line is noted.
func (b *bulkRows) readNDJSON(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), bulkLine)
	for n := 1; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if n == 1 {
			text = bytes.TrimPrefix(text, []byte(byteOrderMark))
		}
		if len(text) == 0 {
			continue
		}
		if err := b.full(); err != nil {
			return err
		}
		var line client.BulkLine
		switch err := decodeStrictly(text, &line); {
		case err != nil:
			b.refuse(client.ImportError{Line: n, Reason: fmt.Sprintf(`a line is {"kind": "prefix", "body": {…}}; this one cannot be read: %v`, err)})
		case line.Kind == "" || len(line.Body) == 0:
			b.refuse(client.ImportError{Line: n, Reason: `a line is {"kind": "prefix", "body": {…}}; this one lacks one of them`})
		default:
			b.take(n, line.Kind, line.Body)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return problem.New(problem.TooLarge, "a line of the body is longer than %d bytes", bulkLine)
	}
	return bodyProblem(lines.Err())
}

// readCSV reads rows under a header. kind may be empty: then the header tells it.
func (b *bulkRows) readCSV(body io.Reader, kind client.Kind) error {
	in := bufio.NewReaderSize(body, 64<<10)
	if mark, _ := in.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = in.Discard(len(byteOrderMark))
	}
	rows := csv.NewReader(in)
	rows.FieldsPerRecord, rows.ReuseRecord, rows.TrimLeadingSpace = -1, true, true
	rows.Comma = separator(in)
	header, err := rows.Read()
	if err != nil {
		return headerProblem(err)
	}
	columns, err := csvColumnsOf(header, kind)
	if err != nil {
		return err
	}
	b.header = columns
	width := len(header)
	for {
		record, err := rows.Read()
		var malformed *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &malformed):
			if err := b.full(); err != nil {
				return err
			}
			b.refuse(client.ImportError{Line: malformed.StartLine, Kind: string(columns.kind),
				Reason: fmt.Sprintf("it is not CSV: %v; a quote inside of a field is written twice, in a field in quotes", malformed.Err)})
			continue
		case err != nil:
			return bodyProblem(err)
		}
		if err := b.full(); err != nil {
			return err
		}
		line, _ := rows.FieldPos(0)
		if len(record) != width {
			b.refuse(client.ImportError{Line: line, Kind: string(columns.kind),
				Reason: fmt.Sprintf("it has %d fields, the header has %d", len(record), width)})
			continue
		}
		b.takeRecord(line, columns, record)
	}
}

// takeRecord makes a body of a record, and a row of it.
func (b *bulkRows) takeRecord(line int, columns *csvHeader, record []string) {
	body := map[string]any{}
	good := true
	for i, value := range record {
		column := columns.columns[i]
		if !utf8.ValidString(value) {
			b.refuse(client.ImportError{Line: line, Kind: string(columns.kind), Field: column.name, Reason: "it is not UTF-8: save the file with that encoding"})
			good = false
			continue
		}
		if value = strings.TrimSpace(value); value == "" {
			continue
		}
		parsed, err := column.parse(value)
		if err != nil {
			b.refuse(client.ImportError{Line: line, Kind: string(columns.kind), Field: column.name, Value: value, Reason: err.Error()})
			good = false
			continue
		}
		into := body
		if column.group != "" {
			group, ok := body[column.group].(map[string]any)
			if !ok {
				group = map[string]any{}
				body[column.group] = group
			}
			into = group
		}
		into[column.member] = parsed
	}
	if !good {
		return
	}
	columns.complete(body)
	text, err := json.Marshal(body)
	if err != nil {
		b.refuse(client.ImportError{Line: line, Kind: string(columns.kind), Reason: err.Error()})
		return
	}
	b.take(line, columns.kind, text)
}

// separator is the comma, or what spreadsheets write in its place where the comma
// is the decimal mark: what the header has.
func separator(in *bufio.Reader) rune {
	head, _ := in.Peek(in.Size())
	line, _, _ := bytes.Cut(head, []byte("\n"))
	for _, other := range ";\t" {
		if !bytes.ContainsRune(line, ',') && bytes.ContainsRune(line, other) {
			return other
		}
	}
	return ','
}

func headerProblem(err error) error {
	if errors.Is(err, io.EOF) {
		return problem.New(problem.Malformed, "the body is empty: the first line of CSV is its header, for example prefix,organisation,origin")
	}
	var malformed *csv.ParseError
	if errors.As(err, &malformed) {
		return problem.New(problem.Malformed, "the header is not CSV: %v", malformed.Err)
	}
	return bodyProblem(err)
}

// csvLine is where a problem of the header is.
func csvLine(column int) string { return "body.header[" + strconv.Itoa(column) + "]" }
