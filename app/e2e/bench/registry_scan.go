package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"hubn/registry/client"
)

const (
	scanRounds = 3
	// memoryPoll is how often the heap is looked at during a scan.
	memoryPoll = 10 * time.Millisecond
)

// measureScanIDs streams the ids of all sources.
func measureScanIDs(ctx context.Context, b *bench, many, few *registryAPI) error {
	var rates []float64
	// As many ids in all, so that the collector has run as often.
	heapFew, err := heapDuring(func() error {
		for range registryMany / registryFew {
			if err := few.scan(ctx, registryFew); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var heapMany []float64
	for range scanRounds {
		begun := time.Now()
		heap, err := heapDuring(func() error { return many.scan(ctx, registryMany) })
		if err != nil {
			return err
		}
		rates = append(rates, registryMany/time.Since(begun).Seconds())
		heapMany = append(heapMany, heap)
	}
	b.figure("registry_scan_ids", median(rates), "ids/s")
	b.compared("registry_scan_ids_heap", slices.Max(heapMany), "MB", slices.Max(heapMany)/heapFew, "heap_at_10000")
	return nil
}

// scan reads the stream to its end and checks that it is whole.
func (a *registryAPI) scan(ctx context.Context, want int) error {
	resp, err := a.send(ctx, http.MethodGet, "/v1/sources/prefix/ids", nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	var last []byte
	for lines.Scan() {
		last = append(last[:0], lines.Bytes()...)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	var tail client.SourceIDsTail
	if err := json.Unmarshal(last, &tail); err != nil || !tail.Complete || tail.Count != int64(want) {
		return fmt.Errorf("the stream of ids ends with %s", last)
	}
	return nil
}

// heapDuring is the largest heap, in MB, that the process has while f runs.
func heapDuring(f func() error) (float64, error) {
	runtime.GC()
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		tick := time.NewTicker(memoryPoll)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-done:
				peak <- most
				return
			case <-tick.C:
			}
		}
	}()
	err := f()
	close(done)
	return float64(<-peak) / 1e6, err
}

const (
	// listPlaces are the pages that are compared with the first one, and listRounds
	// how often each is read.
	listPlaces, listRounds = 40, 9
)

// measureListPage reads pages of 100 prefixes at random places. The slowest place
// counts, by the best of its rounds: what else the machine did is not the list's.
func measureListPage(ctx context.Context, b *bench, many, _ *registryAPI) error {
	const first = "/v1/prefixes?limit=100"
	paths := []string{first}
	for range listPlaces {
		// A list of one prefix says where the list of all goes on after it.
		text, err := many.ask(ctx, http.MethodGet, "/v1/prefixes?limit=1&within="+url.QueryEscape(many.layout.block().String()), nil)
		if err != nil {
			return err
		}
		var page client.Page[json.RawMessage]
		if err := json.Unmarshal(text, &page); err != nil {
			return err
		}
		if page.Next != "" {
			paths = append(paths, first+"&after="+page.Next)
		}
	}
	took := map[string][]float64{}
	for range listRounds {
		for _, path := range paths {
			begun := time.Now()
			text, err := many.ask(ctx, http.MethodGet, path, nil)
			if err != nil {
				return err
			}
			took[path] = append(took[path], milliseconds(time.Since(begun)))
			if n := strings.Count(string(text), `"revision"`); n != 100 {
				return fmt.Errorf("a page of the list has %d prefixes", n)
			}
		}
	}
	var slowest float64
	for _, path := range paths[1:] {
		slowest = max(slowest, slices.Min(took[path]))
	}
	b.compared("registry_list_page", slowest, "ms", slowest/slices.Min(took[first]), "first_page")
	return nil
}
