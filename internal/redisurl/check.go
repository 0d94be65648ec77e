package redisurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/clip"
)

// Severity says what a Problem means for the jobs.
type Severity int

// The severities, least first.
const (
	Note   Severity = iota // something could not be checked, or is good to know
	Warn                   // jobs may be lost by a crash, or soon
	Refuse                 // jobs will be lost or stuck: do not start on it
)

func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warn:
		return "warn"
	case Refuse:
		return "refuse"
	}
	return fmt.Sprintf("Severity(%d)", int(s))
}

// Problem is one way in which a Redis is unfit to keep jobs.
type Problem struct {
	Severity Severity
	Node     string // host:port or socket of the server, or "" where not known
	Text     string // the setting, its value and what follows from it
	Fix      string // what to do about it; may be empty
	Away     bool   // it did not answer, so what it is like is not known
}

func (p Problem) String() string {
	text := p.Severity.String() + ": "
	if p.Node != "" {
		text += p.Node + ": "
	}
	text += p.Text
	if p.Fix != "" {
		text += " (" + p.Fix + ")"
	}
	return text
}

// Check finds out whether the server, or each primary of a cluster, can be trusted
// with jobs, and returns what speaks against it, worst first: its settings, its
// state, and which of the rights that our programs need are missing. It leaves
// nothing behind. What it may not look at (CONFIG, CLUSTER INFO) is a Note. A server
// that does not answer is a Problem to Refuse for.
func Check(ctx context.Context, client redis.UniversalClient) []Problem {
	var problems []Problem
	switch c := client.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex
		err := c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			found := checkNode(ctx, node, true)
			mu.Lock()
			defer mu.Unlock()
			problems = append(problems, found...)
			return nil
		})
		if err != nil {
			problems = append(problems, silent(ctx, client, err))
		}
	case *redis.Client:
		problems = checkNode(ctx, c, false)
	default:
		problems = []Problem{{Severity: Note, Text: fmt.Sprintf("a client of type %T cannot be checked", client)}}
	}
	for i := range problems {
		problems[i].Text = printable(problems[i].Text)
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Node, b.Node))
	})
	return problems
}

// checkNode checks one server. asCluster says whether we speak to it as to a node
// of a cluster.
func checkNode(ctx context.Context, client *redis.Client, asCluster bool) []Problem {
	problems := checkServer(ctx, client, asCluster)
	for i := range problems {
		problems[i].Node = client.Options().Addr
	}
	return problems
}

func checkServer(ctx context.Context, client *redis.Client, asCluster bool) []Problem {
	var problems []Problem
	text, err := client.Info(ctx).Result()
	info := parseInfo(text)
	switch {
	case isDenial(err):
		problems = append(problems, Problem{Severity: Refuse,
			Text: "INFO is refused: after a restart that lost its last writes, a job would start too early",
			Fix:  "allow it: " + setUser(client, "+info")})
	case err != nil:
		return []Problem{silent(ctx, client, err)}
	case !isWhole(info):
		return examine(info, asCluster)
	default:
		problems = append(examine(info, asCluster), fsync(ctx, client, info)...)
	}
	if asCluster {
		problems = append(problems, clusterState(ctx, client)...)
	}
	problems = append(problems, clock(ctx, client)...)
	if info["role"] == "slave" || info["cluster_enabled"] == "1" && !asCluster {
		return problems // what it refuses, it refuses as the wrong server
	}
	return append(problems, rights(ctx, client, asCluster)...)
}

// isWhole reports whether INFO comes from a Redis, and not from something that speaks like one.
func isWhole(info map[string]string) bool { return info["maxmemory_policy"] != "" }

// silent is the problem with a server that answers nothing useful: it is away, or it
// does not let us in.
func silent(ctx context.Context, client redis.UniversalClient, err error) Problem {
	p := Problem{Severity: Refuse, Away: true}
	p.Text, p.Fix = Explain(ctx, client, err)
	var refusal redis.Error
	if errors.As(err, &refusal) {
		p.Away = strings.HasPrefix(refusal.Error(), "LOADING") || strings.HasPrefix(refusal.Error(), "MASTERDOWN")
	}
	return p
}

// examine judges the fields of INFO. It is a pure function, so that a test can ask
// about servers that are hard to come by.
func examine(info map[string]string, asCluster bool) []Problem {
	var found []Problem
	add := func(s Severity, text, fix string) { found = append(found, Problem{Severity: s, Text: text, Fix: fix}) }

	switch policy, known := info["maxmemory_policy"]; {
	case !known:
		add(Note, "settings not checked: INFO has no maxmemory_policy, so this is not a whole Redis", "")
		return found
	case policy == "noeviction":
	case info["maxmemory"] == "0":
		add(Warn, fmt.Sprintf("maxmemory-policy %s: jobs would be evicted once a maxmemory is set", policy),
			"want CONFIG SET maxmemory-policy noeviction")
	default:
		add(Refuse, fmt.Sprintf("maxmemory-policy %s with maxmemory %s: accepted jobs are evicted when memory is short", policy, info["maxmemory"]),
			"want CONFIG SET maxmemory-policy noeviction")
	}
	found = append(found, memory(info)...)
	if v := info["redis_version"]; v != "" && older(v, oldest) {
		add(Refuse, "redis_version "+v+": commands that scripts call are missing", "want at least "+oldest)
	}
	if info["aof_enabled"] == "0" {
		add(Warn, "appendonly no: accepted jobs are lost when Redis crashes", "want CONFIG SET appendonly yes")
	}
	for _, field := range []string{"aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"} {
		if status, known := info[field]; known && status != "ok" {
			add(Warn, fmt.Sprintf("%s %s: Redis cannot write its files", field, status), "see its log; is the disk full?")
		}
	}
	if info["role"] == "slave" {
		add(Refuse, "role replica: it takes no writes", fmt.Sprintf("want the primary, here %s:%s", info["master_host"], info["master_port"]))
	}
	if info["loading"] == "1" {
		add(Warn, "it is loading its data: commands fail until it is done", "")
	}
	if info["cluster_enabled"] == "1" && !asCluster {
		add(Refuse, "it is a node of a cluster", "want a redis-cluster:// URL")
	}
	return found
}

// clusterState says whether the cluster, as this node sees it, serves all slots.
func clusterState(ctx context.Context, client *redis.Client) []Problem {
	text, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return []Problem{{Severity: Note, Text: "cluster state not checked: " + err.Error(), Fix: "allow it: ACL SETUSER … +cluster|info"}}
	}
	if state := parseInfo(text)["cluster_state"]; state != "ok" {
		return []Problem{{Severity: Refuse, Text: fmt.Sprintf("cluster_state %q: some slots are not served", state), Fix: "see CLUSTER INFO"}}
	}
	return nil
}

// fsync says what a power failure costs. It needs the right to CONFIG GET, which a daemon need not
// have.
func fsync(ctx context.Context, client *redis.Client, info map[string]string) []Problem {
	if info["aof_enabled"] != "1" {
		return nil // lost as a whole, as examine says
	}
	got, err := client.ConfigGet(ctx, "appendfsync").Result()
	switch value := got["appendfsync"]; {
	case err != nil:
		return []Problem{{Severity: Note, Text: "appendfsync not checked, CONFIG is refused", Fix: "want everysec or always"}}
	case value == "no":
		return []Problem{{Severity: Warn, Text: "appendfsync no: a power failure costs what the system has not written yet, often 30 s",
			Fix: "want CONFIG SET appendfsync everysec"}}
	case value == "everysec":
		return []Problem{{Severity: Note, Text: "appendfsync everysec: a crash of Redis costs nothing, a power failure up to 2 s",
			Fix: "if that is too much: CONFIG SET appendfsync always"}}
	}
	return nil
}

// memory says how near the store is to being full. Redis does not count what it owes its replicas.
func memory(info map[string]string) []Problem {
	most, used := number(info, "maxmemory"), number(info, "used_memory")-number(info, "mem_not_counted_for_evict")
	if most > 0 && used >= most/10*8 {
		p := Problem{Severity: Warn, Text: fmt.Sprintf("used_memory %d of maxmemory %d: new jobs will soon be refused", used, most),
			Fix: "want more memory, or fewer jobs waiting (depth)"}
		if used >= most {
			p.Text = fmt.Sprintf("used_memory %d of maxmemory %d: new jobs are refused, those that wait still leave", used, most)
		}
		return []Problem{p}
	}
	if rss, system := number(info, "used_memory_rss"), number(info, "total_system_memory"); most == 0 && system > 0 && rss >= system/10*8 {
		return []Problem{{Severity: Warn, Text: fmt.Sprintf("no maxmemory, and used_memory_rss is %d of %d of the machine: the system kills Redis before it refuses a job", rss, system),
			Fix: "want CONFIG SET maxmemory, with maxmemory-policy noeviction"}}
	}
	return nil
}

func number(info map[string]string, field string) int64 {
	n, _ := strconv.ParseInt(info[field], 10, 64)
	return n
}

// oldest is the first version with all commands that scripts call: LPOS came with it.
const oldest = "6.0.6"

// older compares versions. A part that is not a number counts as 0.
func older(a, b string) bool {
	parts := func(v string) (n [3]int) {
		for i, part := range strings.SplitN(v, ".", 3) {
			n[i], _ = strconv.Atoi(part)
		}
		return n
	}
	x, y := parts(a), parts(b)
	return slices.Compare(x[:], y[:]) < 0
}

// clock says when Redis and this host disagree about the time.
func clock(ctx context.Context, client *redis.Client) []Problem {
	before := time.Now()
	theirs, err := client.Time(ctx).Result()
	if err != nil {
		return nil // rights says whether TIME may be called
	}
	trip := time.Since(before)
	ahead, word := theirs.Sub(before.Add(trip/2)), "ahead of"
	if ahead < 0 {
		ahead, word = -ahead, "behind"
	}
	if ahead < time.Second+trip {
		return nil
	}
	return []Problem{{Severity: Note, Text: fmt.Sprintf("its clock is %s %s this host's: slots are not affected, since they follow Redis' clock alone; times that people give are",
		ahead.Round(10*time.Millisecond), word), Fix: "want NTP on both"}}
}

// printable makes what a server said fit for a terminal and a log line.
func printable(s string) string {
	const most = 500
	return clip.Bytes(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "\uFFFD")), most)
}

// parseInfo reads the "name:value" lines of INFO and CLUSTER INFO.
func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found && !strings.HasPrefix(name, "#") {
			info[name] = value
		}
	}
	return info
}
