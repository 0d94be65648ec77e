package choose

// rule writes the lines that configure a choice which is an admission rule.
func rule(entry, flag string) (config []string, run string) {
	return []string{"admit:", "  - { " + entry + " }"}, "--admit '" + flag + "'"
}

func leaf(algorithm, because, worst, entry, flag, trace string) *Choice {
	config, run := rule(entry, flag)
	return &Choice{Algorithm: algorithm, Because: because, Worst: worst, Config: config, Run: run, Trace: "shaper trace " + algorithm + " " + trace}
}

var (
	queue = &Choice{
		Algorithm: "leaky-queue",
		Because:   "a bounded queue that is drained at the rate: one leaves every interval, never two at once; it refuses only when it is full",
		Worst:     "1 + ⌊window / interval⌋, whatever comes in",
		Config:    []string{"defaults: { rate: 10/s, depth: 1000 }"},
		Run:       "--rate 10/s --depth 1000",
		Trace:     "shaper trace leaky-queue --depth 3 --rate 10/s 0 0 0 0 0.1",
	}
	fixed = leaf("fixed-window",
		"counts in windows of the clock (UTC); one number for each client, and a new count when the window ends",
		"twice the limit, around the end of a window",
		"fixed_window: 1000/d", "fixed_window 1000/d",
		"--limit 3 --window 60s 59 59 59 61 61 61")
	meter = leaf("leaky-bucket",
		"refuses what comes faster than the rate, with a small depth that forgives an unsteady clock",
		"depth + rate × window; with a depth of 1, one every interval",
		"leaky_bucket: 10/s, depth: 2", "leaky_bucket 10/s depth 2",
		"--depth 2 --rate 10/s 0 0 0 0.1 0.2")
	token = leaf("token-bucket",
		"bursts pass, up to what was saved up while the client was quiet; in the long run, the rate applies",
		"burst + rate × window",
		"token_bucket: 10/s, burst: 100", "token_bucket 10/s burst 100",
		"--capacity 3 --rate 1/s 0 0 0 0 0.5 1 10")
	log = leaf("sliding-log",
		"remembers when each call came, so it is exact; it takes some 30 bytes for each call within the window",
		"the limit, never one more",
		"sliding_log: 100/m", "sliding_log 100/m",
		"--limit 3 --window 60s 59 59 59 61 119:3")
	counter = leaf("sliding-counter",
		"two numbers for each client: the count of this window, and that of the window before, weighted by how much of it still counts",
		"up to twice the limit if the traffic before was uneven, about the limit if it was even",
		"sliding_counter: 100/m", "sliding_counter 100/m",
		"--limit 3 --window 60s 59 59 59 61 61")
)
