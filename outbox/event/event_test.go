package event

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever is in a stream: it is refused, or it is an event that comes back the
// same when it is written again.
func FuzzParse(f *testing.F) {
	f.Add("L", "L/1", "prefix:17", "4", "changed", "2030-01-01T00:00:00Z", `{"changed":["routing"]}`)
	f.Add("L", "L/1", "", "0", "resync", "2030-01-01T00:00:00.123456Z", "")
	f.Add("L", "L/1", ":", "0", "resync", "2030-01-01T00:00:00+02:00", "{}")
	f.Add("", "", "ptr:2001:db8::1", "-1", "", "yesterday", "[")
	f.Fuzz(func(t *testing.T, lineage, epoch, resource, seq, kind, at, payload string) {
		fields := map[string]any{
			"lineage": lineage, "epoch": epoch, "resource": resource, "seq": seq, "kind": kind, "id": "i", "at": at, "payload": payload,
		}
		first, err := Parse(3, fields)
		if err != nil {
			return
		}
		again := map[string]any{}
		written := first.Fields()
		for i := 0; i < len(written); i += 2 {
			value := written[i+1]
			if n, ok := value.(int64); ok {
				value = strconv.FormatInt(n, 10)
			}
			again[written[i].(string)] = value
		}
		second, err := Parse(3, again)
		if err != nil {
			t.Fatalf("what was read as %+v is refused when it is written again: %v", first, err)
		}
		first.CreatedAt, second.CreatedAt = first.CreatedAt.UTC(), second.CreatedAt.UTC()
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("read, written and read again (-first +second):\n%s", diff)
		}
	})
}
