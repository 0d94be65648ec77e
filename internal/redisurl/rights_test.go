package redisurl

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

const usersFile = "../../deploy/users.acl"

// allowed are the commands that deploy/users.acl gives.
func allowed(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(usersFile)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(` \+([a-z|]+)`).FindAllStringSubmatch(string(b), -1) {
		names = append(names, m[1])
	}
	return names
}

// Every command that scripts of ours and of asynq call is allowed, and tried by the doctor; what is
// allowed beyond those is for connections. So a script that calls something new cannot fail for
// users who have only the rights of that file.
func TestUsersFileTwin(t *testing.T) {
	users := allowed(t)
	var tried []string
	for _, p := range probes {
		name, _, _ := strings.Cut(p, " ")
		tried = append(tried, name)
		if !slices.Contains(users, name) {
			t.Errorf("%s is tried, but not allowed", name)
		}
	}
	scripts := map[string]string{} // file → source
	for _, glob := range []string{"../../*/lua/*.lua", "../*/lua/*.lua", "../*/lua/lib/*.lua"} {
		files, err := filepath.Glob(glob)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no scripts, %v", glob, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			scripts[f] = string(b)
		}
	}
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/hibiken/asynq").Output()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "internal/rdb/rdb.go")) // inspect.go is not used
	if err != nil {
		t.Fatal(err)
	}
	scripts["asynq"] = string(b)
	calls := regexp.MustCompile(`call(?:\(|, )(?:\w+ and ["']\w+["'] or )?["'](\w+)["']`)
	for file, source := range scripts {
		for _, m := range calls.FindAllStringSubmatch(source, -1) {
			name := strings.ToLower(m[1])
			if !slices.Contains(users, name) {
				t.Errorf("%s calls %s, which %s does not allow", file, name, usersFile)
			}
			if name != "publish" && name != "info" && !slices.Contains(tried, name) {
				t.Errorf("%s calls %s, which is not tried", file, name)
			}
		}
	}
	connection := []string{"auth", "hello", "quit", "select", "client|setname", "command", "cluster|slots", "cluster|shards",
		"cluster|info", "info", "publish", "subscribe", "unsubscribe"}
	for _, name := range users {
		if !slices.Contains(tried, name) && !slices.Contains(connection, name) {
			t.Errorf("%s is allowed, but nothing needs it", name)
		}
	}
}

// as logs in as the user of deploy/users.acl, changed by rules.
func as(t *testing.T, s *redistest.Server, rules ...any) redis.UniversalClient {
	t.Helper()
	if err := s.Client().Do(t.Context(), append([]any{"ACL", "SETUSER", "shaper", ">pw"}, rules...)...).Err(); err != nil {
		t.Fatal(err)
	}
	client, err := Open("redis://shaper:pw@"+s.Addr(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestRights(t *testing.T) {
	file, err := filepath.Abs(usersFile)
	if err != nil {
		t.Fatal(err)
	}
	start := func(t *testing.T) *redistest.Server {
		return redistest.Start(t, redistest.AOF(), redistest.Args("--aclfile", file))
	}
	notes := []string{"note: appendfsync not checked, CONFIG is refused"}
	for _, row := range []struct {
		name  string
		rules []any
		want  []string
	}{
		{"the file's", nil, nil},
		{"no set, and so no string to try others on", []any{"-set"}, []string{"refuse: rights are missing to commands: +set"}},
		{"two commands less", []any{"-lpos", "-unlink"}, []string{"refuse: rights are missing to commands: +lpos +unlink"}},
		{"no scripts", []any{"-eval", "-evalsha"}, []string{"refuse: rights are missing to commands: +eval +evalsha"}},
		{"nobody listens", []any{"-subscribe"}, []string{"refuse: rights are missing to commands: +subscribe"}},
		{"no keys of asynq", []any{"resetkeys", "~shaper:*"}, []string{"refuse: rights are missing to keys: ~asynq:*"}},
		{"no keys of ours", []any{"resetkeys", "~asynq:*"}, []string{"refuse: rights are missing to keys: ~shaper:*"}},
		{"may only read", []any{"resetkeys", "%R~shaper:*", "%R~asynq:*"}, []string{"refuse: rights are missing to keys: ~asynq:* ~shaper:*"}},
		{"no channels", []any{"resetchannels"}, []string{"refuse: rights are missing to channels: &asynq:cancel &shaper:*"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			expect(t, Check(t.Context(), as(t, s, row.rules...)), append(row.want, notes...)...)
			if left := s.Client().Keys(t.Context(), "*").Val(); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
	t.Run("a command that is renamed", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t, redistest.Args("--rename-command", "LPOS", ""))
		expect(t, Check(t.Context(), s.Client()), "refuse: rights are missing to commands: +lpos", "warn: appendonly no")
	})
	t.Run("a wrong password", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t, redistest.Password("right"))
		for _, url := range []string{"redis://:wrong@" + s.Addr(), "redis://" + s.Addr()} {
			client, err := Open(url, Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			got := Check(t.Context(), client)
			expect(t, got, "refuse: password")
			if len(got) > 0 && (got[0].Away || strings.Contains(got[0].String(), ":wrong")) {
				t.Errorf("%+v: it is there, and passwords are not told", got[0])
			}
		}
	})
	t.Run("a cluster", func(t *testing.T) {
		testenv.Long(t, "starts six servers")
		t.Parallel()
		cluster := redistest.StartCluster(t, redistest.Args("--aclfile", file))
		for i, node := range cluster.Nodes {
			rules := []any{"ACL", "SETUSER", "shaper", ">pw"}
			if i == 1 {
				rules = append(rules, "-zadd")
			}
			if err := node.Client().Do(t.Context(), rules...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		client, err := Open(strings.Replace(cluster.URL(), "://", "://shaper:pw@", 1), Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		got := Check(t.Context(), client)
		expect(t, got, "refuse: rights are missing to commands: +zadd", "warn: appendonly no", "warn: appendonly no", "warn: appendonly no")
		if got[0].Node != cluster.Nodes[1].Addr() {
			t.Errorf("%v, want it to be told of %s", got[0], cluster.Nodes[1].Addr())
		}
		for _, node := range cluster.Nodes {
			if left := node.Client().Keys(t.Context(), "*").Val(); len(left) > 0 {
				t.Errorf("%s: left behind: %q", node.Addr(), left)
			}
		}
	})
}
