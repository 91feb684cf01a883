package embedded

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestOutputCutsLongLinesAndLosesNothing(t *testing.T) {
	var log bytes.Buffer
	o := &output{
		level: func(string) slog.Level { return slog.LevelInfo },
		log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.MessageKey {
				return a
			}
			return slog.Attr{}
		}})),
	}
	long := strings.Repeat("x", maxLine-1) + "y" + "z"
	for _, piece := range []string{"first\r\nsec", "ond\n", long, "end\nopen"} {
		if n, err := o.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("Write answers %d, %v", n, err)
		}
	}
	got := strings.Fields(strings.ReplaceAll(log.String(), "msg=", ""))
	want := []string{"first", "second", long[:maxLine], "zend"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the log's lines are %d, the last %q; want %d, the last %q", len(got), got[len(got)-1], len(want), want[3])
	}
	if tail := o.tail(); !strings.HasSuffix(tail, "\nzend\nopen") {
		t.Errorf("the tail ends with %q", tail[max(0, len(tail)-20):])
	}
}
