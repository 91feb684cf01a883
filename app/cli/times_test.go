package cli

import (
	"testing"
	"time"
)

func TestDurationsKnowDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30d": 720 * time.Hour, "0d": 0, "90m": 90 * time.Minute, "1.5h": 90 * time.Minute,
	} {
		if got, err := duration(text); err != nil || got != want {
			t.Errorf("duration(%q) is %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"d", "-1d", "1.5d", "99999d", "soon", ""} {
		if got, err := duration(text); err == nil {
			t.Errorf("duration(%q) is %s, want an error", text, got)
		}
	}
}
