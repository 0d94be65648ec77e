package check

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

const root = "../.."

// pinned matches an image with at least a minor and a patch version in its tag.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+:\d+\.\d+\.\d+(-[a-z0-9.]+)?$`)

// compose loads docker-compose.yml as `docker compose config` would, with the given environment.
func compose(t *testing.T, env types.Mapping) (*types.Project, error) {
	t.Helper()
	path := filepath.Join(root, "docker-compose.yml")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  root,
		ConfigFiles: []types.ConfigFile{{Filename: path, Content: b}},
		Environment: env,
	}, func(o *loader.Options) { o.SetProjectName("jobshaper", true) })
}

func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := compose(t, types.Mapping{"SHAPER_API_TOKENS": "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestComposeWantsAToken(t *testing.T) {
	if _, err := compose(t, nil); err == nil || !strings.Contains(err.Error(), "SHAPER_API_TOKENS") {
		t.Errorf("without a token: %v; want an error that names SHAPER_API_TOKENS", err)
	}
}

func TestComposeReadByOldVersions(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`(?m)^name:`).Match(b) {
		t.Error("a top-level name: docker-compose 1.29 refuses it")
	}
}

func TestComposeRedis(t *testing.T) {
	redis := project(t).Services["redis"]
	for option, want := range map[string]string{"--appendonly": "yes", "--maxmemory-policy": "noeviction"} {
		if got := after(redis.Command, option); got != want {
			t.Errorf("%s is %q, want %q", option, got, want)
		}
	}
	if !pinned.MatchString(redis.Image) {
		t.Errorf("image %q is not pinned to a version", redis.Image)
	}
	if len(redis.Ports) > 0 {
		t.Errorf("Redis has no password and publishes %v", redis.Ports)
	}
	if !slices.ContainsFunc(redis.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Type == types.VolumeTypeVolume && v.Target == "/data"
	}) {
		t.Errorf("no named volume at /data: %v", redis.Volumes)
	}
}

func TestComposeShaper(t *testing.T) {
	p := project(t)
	shaper := p.Services["shaper"]
	if len(shaper.Ports) == 0 {
		t.Error("the API is not published")
	}
	for _, port := range shaper.Ports {
		if port.HostIP != "127.0.0.1" {
			t.Errorf("port %s is published on %q, want 127.0.0.1", port.Published, port.HostIP)
		}
	}
	for name, want := range map[string]string{
		"SHAPER_REDIS": "redis://redis:6379/0", "SHAPER_LISTEN": "0.0.0.0:8080", "SHAPER_API_TOKENS": "secret",
	} {
		if got := shaper.Environment[name]; got == nil || *got != want {
			t.Errorf("%s is %v, want %q", name, got, want)
		}
	}
	if d := shaper.DependsOn["redis"]; d.Condition != types.ServiceConditionHealthy {
		t.Errorf("starts when redis is %q, want %q", d.Condition, types.ServiceConditionHealthy)
	}
	if g := shaper.StopGracePeriod; g == nil || time.Duration(*g) < 30*time.Second {
		t.Errorf("stop_grace_period is %v, want 30s or more: running jobs need it", g)
	}
	if _, err := os.Stat(filepath.Join(root, shaper.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	config := after(shaper.Command, "--config")
	for _, v := range shaper.Volumes {
		if v.Target != config {
			continue
		}
		if info, err := os.Stat(v.Source); err != nil || !info.Mode().IsRegular() || !v.ReadOnly {
			t.Errorf("%s at %s: %v, read-only %v; want a file that exists, read-only", v.Source, v.Target, err, v.ReadOnly)
		}
		return
	}
	t.Errorf("nothing is mounted at %q, the --config", config)
}

func TestComposeEveryService(t *testing.T) {
	for name, s := range project(t).Services {
		if s.HealthCheck == nil || len(s.HealthCheck.Test) == 0 || s.HealthCheck.Test[0] != "CMD" {
			t.Errorf("%s: no health check that runs without a shell", name)
		}
		if s.Restart != types.RestartPolicyUnlessStopped {
			t.Errorf("%s: restart is %q", name, s.Restart)
		}
		if s.Privileged || s.NetworkMode == "host" {
			t.Errorf("%s: privileged, or on the host's network", name)
		}
	}
}

// after returns the argument that follows option, empty for none.
func after(args []string, option string) string {
	if i := slices.Index(args, option); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}
