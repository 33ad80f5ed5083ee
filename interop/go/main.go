// Looks regions up as client-go does, at one PD endpoint, and tells what that took.
//
// The endpoint is a replica that presents itself as PD. Each lookup is a cold one: the cached region is invalidated
// before the next. What a backoff costs is client-go's own to say; a lookup without trouble has none.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/pingcap/log"
	"github.com/tikv/client-go/v2/tikv"
	"go.uber.org/zap"
)

type report struct {
	Lookups    int            `json:"lookups"`
	Errors     int            `json:"errors"`
	Wrong      int            `json:"wrong"`
	Backoffs   map[string]int `json:"backoffs"`
	SleptMs    int            `json:"slept_ms"`
	Timestamps int            `json:"timestamps"`
	P50Us      int64          `json:"p50_us"`
	P99Us      int64          `json:"p99_us"`
	SlowestUs  int64          `json:"slowest_us"`
	FirstError string         `json:"first_error,omitempty"`
}

func main() {
	endpoint := flag.String("pd", "", "PD endpoint, host:port")
	path := flag.String("keys", "", "file of keys in hex, one a line")
	budget := flag.Int("budget", 40000, "milliseconds that one lookup may sleep")
	flag.Parse()
	if err := run(*endpoint, *path, *budget); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(endpoint, path string, budget int) error {
	log.ReplaceGlobals(zap.NewNop(), &log.ZapProperties{Level: zap.NewAtomicLevelAt(zap.FatalLevel)})
	keys, err := read(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	pd, err := tikv.NewPDClient([]string{endpoint})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pd.Close()
	cache := tikv.NewRegionCache(pd)
	defer cache.Close()

	r := report{Backoffs: map[string]int{}}
	took := make([]time.Duration, 0, len(keys))
	var last int64
	for i, key := range keys {
		if i%100 == 0 {
			physical, logical, err := pd.GetTS(ctx)
			now := physical<<18 + logical
			if err != nil || now <= last {
				return fmt.Errorf("timestamp %d after %d: %v", now, last, err)
			}
			last = now
			r.Timestamps++
		}
		bo := tikv.NewBackofferWithVars(ctx, budget, nil)
		begun := time.Now()
		location, err := cache.LocateKey(bo, key)
		took = append(took, time.Since(begun))
		r.Lookups++
		r.SleptMs += bo.GetTotalSleep()
		for kind, times := range bo.GetBackoffTimes() {
			r.Backoffs[kind] += times
		}
		switch {
		case err != nil:
			r.Errors++
			if r.FirstError == "" {
				r.FirstError = err.Error()
			}
		case bytes.Compare(key, location.StartKey) < 0,
			len(location.EndKey) > 0 && bytes.Compare(key, location.EndKey) >= 0:
			r.Wrong++
		default:
			cache.InvalidateCachedRegion(location.Region)
		}
	}
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	if n := len(took); n > 0 {
		r.P50Us = took[n/2].Microseconds()
		r.P99Us = took[n*99/100].Microseconds()
		r.SlowestUs = took[n-1].Microseconds()
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func read(path string) ([][]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var keys [][]byte
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, err := hex.DecodeString(lines.Text())
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, lines.Err()
}
