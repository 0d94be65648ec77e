package buckets

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// vector is one case of testdata/vectors.json; generate.py beside it made them and
// says what each field means.
type vector struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Params    struct {
		Capacity int64 `json:"capacity"`
		Events   int64 `json:"events"`
		Per      int64 `json:"per_us"`
		Limit    int64 `json:"limit"`
		Window   int64 `json:"window_us"`
		Depth    int64 `json:"depth"`
	} `json:"params"`
	Rows []struct {
		T         int64 `json:"t_us"`
		N         int64 `json:"n"`
		OK        bool  `json:"ok"`
		Remaining int64 `json:"remaining"`
		Retry     int64 `json:"retry_us"`
		Reset     int64 `json:"reset_us"`
		Wait      int64 `json:"wait_us"`
	} `json:"rows"`
}

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
