package config_test

import (
	"fmt"

	"github.com/jobshaper/jobshaper/internal/config"
)

func ExampleParse() {
	f, err := config.Parse("shaper.yaml", []byte(`
redis: redis://127.0.0.1:6379/0
downstreams:
  transcoder:
    concurrency: 16
    target: { exec: [ffmpeg, -i, "{payload.input}", "{payload.output}"] }
    defaults: { rate: 10/s, depth: 1000, backoff: 1s..5m }
    tenants:
      acme: { rate: 20/s }
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	d := f.Downstreams[0]
	fmt.Println(d.Target.Exec[0], d.Concurrency, d.Policy.Defaults.Backoff, d.Tenants["acme"].Rate)
	// Output: ffmpeg 16 1s..5m0s 20/s
}

// All mistakes are reported, each with its place.
func ExampleParse_mistakes() {
	_, err := config.Parse("shaper.yaml", []byte(`
downstreams:
  transcoder:
    defaults:
      depth: 0
      rate: 10
      on_full: wait
`))
	fmt.Println(err)
	// Output:
	// shaper.yaml:5:14: downstreams.transcoder.defaults.depth: "0": want 1 to 10000000
	// shaper.yaml:6:13: downstreams.transcoder.defaults.rate: "10": want events per duration, such as 10/s, 600/m or 1/90s
	// shaper.yaml:7:16: downstreams.transcoder.defaults.on_full: "wait": want reject, drop-oldest or block
}
