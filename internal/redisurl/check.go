package redisurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Severity says what a Problem means for the jobs.
type Severity int

// The severities, least first.
const (
	Note   Severity = iota // could not be checked, or good to know
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

// Check asks the server, or each primary of a cluster, whether it can be trusted
// with jobs, and returns what speaks against it, worst first. It needs no more
// than the right to INFO; without that it returns a Note. A server that does not
// answer is a Problem to Refuse for.
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
			problems = append(problems, unreachable("", err))
		}
	case *redis.Client:
		problems = checkNode(ctx, c, false)
	default:
		problems = []Problem{{Severity: Note, Text: fmt.Sprintf("a client of type %T cannot be checked", client)}}
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(b.Severity, a.Severity) })
	return problems
}

// checkNode checks one server. asCluster says whether we speak to it as to a node
// of a cluster.
func checkNode(ctx context.Context, client *redis.Client, asCluster bool) []Problem {
	node := client.Options().Addr
	text, err := client.Info(ctx).Result()
	var refusal redis.Error
	switch {
	case errors.As(err, &refusal):
		return []Problem{{Note, node, "settings not checked, INFO is refused: " + refusal.Error(), "allow it: ACL SETUSER … +info"}}
	case err != nil:
		return []Problem{unreachable(node, err)}
	}
	problems := examine(parseInfo(text), asCluster)
	if asCluster {
		problems = append(problems, clusterState(ctx, client)...)
	}
	for i := range problems {
		problems[i].Node = node
	}
	return problems
}

// examine judges the fields of INFO. It is a pure function, so that a test can ask
// about servers that are hard to come by.
func examine(info map[string]string, asCluster bool) []Problem {
	var found []Problem
	add := func(s Severity, text, fix string) { found = append(found, Problem{Severity: s, Text: text, Fix: fix}) }

	switch policy, known := info["maxmemory_policy"]; {
	case !known:
		add(Note, "settings not checked: INFO tells no maxmemory_policy, so this is not a whole Redis", "")
	case policy == "noeviction":
	case info["maxmemory"] == "0":
		add(Warn, fmt.Sprintf("maxmemory-policy %s: jobs would be evicted once a maxmemory is set", policy),
			"want CONFIG SET maxmemory-policy noeviction")
	default:
		add(Refuse, fmt.Sprintf("maxmemory-policy %s with maxmemory %s: accepted jobs are evicted when memory is short", policy, info["maxmemory"]),
			"want CONFIG SET maxmemory-policy noeviction")
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

func unreachable(node string, err error) Problem {
	return Problem{Refuse, node, "no answer: " + err.Error(), "is it running, and the URL right?"}
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
