// Histcheck judges a history that a test kept: histcheck FILE.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
)

func main() {
	var terms history.Terms
	flag.DurationVar(&terms.Tolerance, "tolerance", 20*time.Millisecond, "how long after its slot a start may happen")
	flag.DurationVar(&terms.Slack, "slack", time.Millisecond, "how much later than the start a recorder may have read its clock")
	flag.IntVar(&terms.InFlight, "in-flight", 0, "most jobs of a tenant that may run at a time; 0 = not looked at")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: histcheck [flags] FILE")
		os.Exit(2)
	}
	report, err := history.Judge(flag.Arg(0), terms)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bad := report.Violations()
	for _, v := range bad {
		fmt.Println(v)
	}
	fmt.Println(report)
	if len(bad) > 0 {
		os.Exit(1)
	}
}
