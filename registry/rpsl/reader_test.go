package rpsl_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"hubn/registry/rpsl"
)

func read(t *testing.T, text string) ([]rpsl.Raw, rpsl.Tally) {
	t.Helper()
	var tally rpsl.Tally
	var raws []rpsl.Raw
	for raw, err := range rpsl.Read("file", strings.NewReader(text), &tally) {
		if err != nil {
			t.Fatal(err)
		}
		raws = append(raws, raw)
	}
	return raws, tally
}

func TestReadSplitsObjects(t *testing.T) {
	tests := []struct {
		name, text string
		want       []rpsl.Raw
		tally      rpsl.Tally
	}{
		{"blank lines part objects", "route: a\norigin: b\n\n\nroute6: c\n",
			[]rpsl.Raw{{File: "file", Line: 1, Text: "route: a\norigin: b\n"}, {File: "file", Line: 5, Text: "route6: c\n"}},
			rpsl.Tally{Files: 1, Objects: 2}},
		{"the last line needs no end", "route: a",
			[]rpsl.Raw{{File: "file", Line: 1, Text: "route: a\n"}}, rpsl.Tally{Files: 1, Objects: 1}},
		{"CRLF and blank lines with blanks", "\r\nroute: a\r\norigin: b\r\n \t\r\nroute: c\r\n",
			[]rpsl.Raw{{File: "file", Line: 2, Text: "route: a\norigin: b\n"}, {File: "file", Line: 5, Text: "route: c\n"}},
			rpsl.Tally{Files: 1, Objects: 2}},
		{"comments before and inside", "% a server's remark\n# another\n\nroute: a\n# inside\norigin: b\n",
			[]rpsl.Raw{{File: "file", Line: 4, Text: "route: a\n# inside\norigin: b\n"}}, rpsl.Tally{Files: 1, Objects: 1}},
		{"continuation lines stay", "route: a\n b\n\tc\n+\n+d\n\n",
			[]rpsl.Raw{{File: "file", Line: 1, Text: "route: a\n b\n\tc\n+\n+d\n"}}, rpsl.Tally{Files: 1, Objects: 1}},
		{"other classes are counted", "mntner: A-MNT\nauth: x\n\nroute: a\n\nAS-SET: AS-X\n",
			[]rpsl.Raw{{File: "file", Line: 4, Text: "route: a\n"}}, rpsl.Tally{Files: 1, Objects: 1, Others: map[rpsl.Class]int{"as-set": 1, "mntner": 1}}},
		{"class in any case, after a byte order mark", "\xef\xbb\xbfInetNum: a\n",
			[]rpsl.Raw{{File: "file", Line: 1, Text: "InetNum: a\n"}}, rpsl.Tally{Files: 1, Objects: 1}},
		{"a file that is not RPSL", "# README\n\nThis is: not RPSL\n\nroute: a\n", nil, rpsl.Tally{SkippedFiles: 1}},
		{"a file with other attributes", "name: x\nroute: a\n", nil, rpsl.Tally{SkippedFiles: 1}},
		{"an empty file", "", nil, rpsl.Tally{SkippedFiles: 1}},
		{"only comments", "# nothing\n% at all\n", nil, rpsl.Tally{SkippedFiles: 1}},
		{"an object parted by a blank line", "route: a\n\norigin: AS1\n",
			[]rpsl.Raw{{File: "file", Line: 1, Text: "route: a\n"}, {File: "file", Line: 3, Text: "origin: AS1\n",
				Refused: `it begins with "origin: AS1", which is no class of RPSL; a blank line inside an object parts it`}},
			rpsl.Tally{Files: 1, Objects: 2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			raws, tally := read(t, test.text)
			if diff := cmp.Diff(test.want, raws); diff != "" {
				t.Errorf("objects (want -, got +):\n%s", diff)
			}
			if !cmp.Equal(tally, test.tally) {
				t.Errorf("tally %+v, want %+v", tally, test.tally)
			}
		})
	}
}

func TestReadBoundsLinesAndObjects(t *testing.T) {
	longLine := "route: 192.0.2.0/24\ndescr: " + strings.Repeat("x", rpsl.MaxLine) + "\norigin: AS1\n\n"
	longObject := "aut-num: AS1\n" + strings.Repeat("import: "+strings.Repeat("y", 1000)+"\n", rpsl.MaxObject/1000+2) + "\n"
	other := "mntner: M\nauth: " + strings.Repeat("z", 3*rpsl.MaxLine) + "\n\n"
	raws, tally := read(t, longLine+other+longObject+"aut-num: AS2\n")
	if len(raws) != 3 || tally.Objects != 3 || len(tally.Others) != 1 {
		t.Fatalf("%d objects, tally %+v; want 3 and one of another class", len(raws), tally)
	}
	for i, want := range []string{"line 2 is longer than 65536 bytes", "the object is longer than 1048576 bytes", ""} {
		if raws[i].Refused != want || len(raws[i].Text) > rpsl.MaxObject+1 {
			t.Errorf("object %d: refused %q with %d bytes, want %q", i, raws[i].Refused, len(raws[i].Text), want)
		}
	}
	if want := 4 + 3 + 1 + rpsl.MaxObject/1000 + 2 + 2; raws[2].Line != want || raws[2].Text != "aut-num: AS2\n" {
		t.Errorf("the object after them is %+v", raws[2])
	}
	input := rpsl.ParseAll(raws)
	if len(input.Refused) != 2 || input.Refused[0].Key != "192.0.2.0/24" || input.Refused[1].Class != rpsl.ClassAutNum {
		t.Errorf("refused %v", input.Refused)
	}
}

func TestReadStopsWhenAsked(t *testing.T) {
	var tally rpsl.Tally
	for range rpsl.Read("file", strings.NewReader("route: a\n\nroute: b\n\nroute: c\n"), &tally) {
		break
	}
	if tally.Objects != 1 {
		t.Errorf("%d objects were read, want 1", tally.Objects)
	}
}

func TestReadReportsErrorsOfReading(t *testing.T) {
	packed := gzipped(t, strings.Repeat("route: 192.0.2.0/24\n\n", 1000))
	broken := errors.New("disk on fire")
	tests := []struct {
		name string
		in   io.Reader
		want string
	}{
		{"cut gzip", bytes.NewReader(packed[:len(packed)-4]), "unexpected EOF"},
		{"gzip header alone", bytes.NewReader(packed[:4]), "cannot be unpacked"},
		{"read error", io.MultiReader(strings.NewReader("route: a\n"), iotest.ErrReader(broken)), "file:2: disk on fire"},
		{"read error at once", iotest.ErrReader(broken), "disk on fire"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var tally rpsl.Tally
			var last error
			for _, err := range rpsl.Read("file", test.in, &tally) {
				last = err
			}
			if last == nil || !strings.Contains(last.Error(), test.want) {
				t.Errorf("error %v, want one with %q", last, test.want)
			}
		})
	}
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tree is a folder with files; a name that ends in @ is a symbolic link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, strings.TrimSuffix(name, "@"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(path, []byte(text), 0o644)
		if strings.HasSuffix(name, "@") {
			err = errors.Join(os.Remove(path), os.Symlink(text, path))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestWalkReadsFoldersFilesGzipAndStandardInput(t *testing.T) {
	folder := tree(t, map[string]string{
		"data/inetnum/192.0.2.0_24": "inetnum: 192.0.2.0/24\n",
		"data/inetnum/10.0.0.0_8":   "inetnum: 10.0.0.0/8\n",
		"data/route/192.0.2.0_24":   "route: 192.0.2.0/24\n",
		"README.md":                 "# Registry\n\nread me\n",
		".git/config":               "route: hidden\n",
		"data/link@":                "inetnum/10.0.0.0_8",
		"data/loop@":                "..",
	})
	single := filepath.Join(tree(t, map[string]string{"big.rpsl.gz": string(gzipped(t, "route: a\n\nroute: b\n"))}), "big.rpsl.gz")
	var tally rpsl.Tally
	var got []string
	for raw, err := range rpsl.Walk([]string{folder, "-", single}, strings.NewReader("route: s\n"), &tally) {
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(folder, raw.File)
		if strings.HasPrefix(name, "..") || raw.File == "stdin" {
			name = filepath.Base(raw.File)
		}
		got = append(got, name+" "+strings.TrimSpace(raw.Text))
	}
	want := []string{
		"data/inetnum/10.0.0.0_8 inetnum: 10.0.0.0/8", "data/inetnum/192.0.2.0_24 inetnum: 192.0.2.0/24",
		"data/link inetnum: 10.0.0.0/8", "data/route/192.0.2.0_24 route: 192.0.2.0/24",
		"stdin route: s", "big.rpsl.gz route: a", "big.rpsl.gz route: b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := (rpsl.Tally{Files: 6, SkippedFiles: 1, Objects: 7}); !cmp.Equal(tally, want) {
		t.Errorf("tally %+v, want %+v", tally, want)
	}
}

func TestWalkGoesOnAfterWhatItCannotRead(t *testing.T) {
	folder := tree(t, map[string]string{"a": "route: a\n", "b.gz": "\x1f\x8bno gzip", "c": "route: c\n"})
	var tally rpsl.Tally
	var objects, failures []string
	for raw, err := range rpsl.Walk([]string{folder, filepath.Join(folder, "missing")}, nil, &tally) {
		if err != nil {
			failures = append(failures, err.Error())
			continue
		}
		objects = append(objects, strings.TrimSpace(raw.Text))
	}
	if !slices.Equal(objects, []string{"route: a", "route: c"}) {
		t.Errorf("objects %q", objects)
	}
	if len(failures) != 2 || !strings.Contains(failures[0], "b.gz") || !strings.Contains(failures[1], "missing") {
		t.Errorf("errors %q, want one for b.gz and one for the missing file", failures)
	}
}

func TestWalkEntersAFolderBehindALink(t *testing.T) {
	folder := tree(t, map[string]string{"real/a": "route: a\n", "link@": "real"})
	var tally rpsl.Tally
	for _, err := range rpsl.Walk([]string{filepath.Join(folder, "link")}, nil, &tally) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if tally.Objects != 1 {
		t.Errorf("tally %+v, want one object", tally)
	}
}
