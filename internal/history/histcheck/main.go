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
	arrivals := flag.String("arrivals", "", "judge the starts that a downstream wrote down in this file, by the rates and stops in FILE")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: histcheck [flags] FILE")
		os.Exit(2)
	}
	judge := func() (*history.Report, error) { return history.Judge(flag.Arg(0), terms) }
	if *arrivals != "" {
		judge = func() (*history.Report, error) { return history.Arrivals(flag.Arg(0), *arrivals, terms) }
	}
	report, err := judge()
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
