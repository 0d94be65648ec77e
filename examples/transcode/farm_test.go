package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/config"
)

// farm.yaml is the same farm as the program's.
func TestFarmFile(t *testing.T) {
	file, err := config.Load("farm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := file.Downstreams[0]
	if len(file.Downstreams) != 1 || d.Name != downstream {
		t.Fatalf("%d downstreams, the first is %s: want only %s", len(file.Downstreams), d.Name, downstream)
	}
	if !reflect.DeepEqual(d.Policy, policy) || d.Concurrency != places {
		t.Errorf("%+v and %d places, want %+v and %d", d.Policy, d.Concurrency, policy, places)
	}
	if !slices.Equal(d.Target.Exec, ffmpegCommand) {
		t.Errorf("command %q, want %q", d.Target.Exec, ffmpegCommand)
	}
	for _, tenant := range tenants {
		if got := d.Tenants[tenant.name]; got != tenant.policy {
			t.Errorf("tenant %s: %+v, want %+v", tenant.name, got, tenant.policy)
		}
	}
	if len(d.Tenants) != len(tenants) {
		t.Errorf("%d tenants, want %d", len(d.Tenants), len(tenants))
	}
}

// jobs.jsonl has the jobs of the program's first burst, on the files that it leaves.
func TestJobsFile(t *testing.T) {
	b, err := os.ReadFile("jobs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	jobs := strings.Split(strings.TrimSpace(string(b)), "\n")
	f := farm{tenants: tenants, tool: tool{inputExt: ".mov", outputExt: ".mp4"}}
	for _, tenant := range tenants {
		for _, file := range f.filesOf(tenant, "transcode-output")[:tenant.burst] {
			if len(jobs) == 0 {
				t.Fatalf("no line for %s", file.id)
			}
			var job struct {
				Tenant, ID, Type string
				Payload          struct{ Input, Output string }
			}
			if err := json.Unmarshal([]byte(jobs[0]), &job); err != nil {
				t.Fatal(err)
			}
			if job.Tenant != tenant.name || job.ID != file.id || job.Type != jobType ||
				filepath.FromSlash(job.Payload.Input) != file.input || filepath.FromSlash(job.Payload.Output) != file.output {
				t.Errorf("%s, want the job of %+v", jobs[0], file)
			}
			jobs = jobs[1:]
		}
	}
	if len(jobs) > 0 {
		t.Errorf("%d lines more than files in the first burst", len(jobs))
	}
}
