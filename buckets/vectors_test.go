package buckets

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/golden"
)

// vector is one case of testdata/vectors.json.
type vector golden.Vector

func (v vector) rate() Rate {
	return Rate{Events: v.Params.Events, Period: time.Duration(v.Params.Per) * time.Microsecond}
}

func loadVectors(t *testing.T) []vector {
	t.Helper()
	name := "testdata/vectors.json"
	if other := os.Getenv("BUCKETS_VECTORS"); other != "" {
		name = other // cases of another seed
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	if len(vs) == 0 {
		t.Fatalf("%s holds no case", name)
	}
	return vs
}
