package main

import (
	"context"
	"fmt"
)

// outboxGroup measures the outbox against the naive one.
func outboxGroup(ctx context.Context, b *bench) error {
	s, err := startServers(ctx, b)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name    string
		measure func(context.Context, *bench, *servers) error
	}{
		{"draining", measureDrains},
		{"latency", measureLatency},
		{"cost for writers", measureWriterCost},
	} {
		if err := part.measure(ctx, b, s); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}
