package shaper

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/lua"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// schemaOne are the scripts of the first version whose state is of schema 1.0, without their
// comments.
const schemaOne = "testdata/scripts-1.0.txtar"

// earlier is a hook that makes some calls with the scripts of an earlier version, as another daemon
// would that serves the same downstreams.
type earlier struct {
	sha, name  map[any]string // of a script of today: that of its earlier version, and what it is called
	calls, old atomic.Int64
	made       sync.Map // names of scripts whose earlier version was called
}

func newEarlier(t *testing.T, rdb *redis.Client, file string) *earlier {
	t.Helper()
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for part := range strings.SplitSeq("\n"+string(archive), "\n-- lua/") {
		name, text, _ := strings.Cut(part, " --\n")
		files["lua/"+name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	h := &earlier{sha: map[any]string{}, name: map[any]string{}}
	for name, s := range queue.Scripts {
		text, err := lua.Assemble(files, name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		old, err := rdb.ScriptLoad(t.Context(), text).Result()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Load(t.Context(), rdb).Err(); err != nil {
			t.Fatal(err)
		}
		if old == s.Hash() {
			t.Fatalf("%s is the script of today", name)
		}
		h.sha[s.Hash()], h.name[s.Hash()] = old, name
	}
	return h
}

// turn makes a call one of an earlier version, or not, as the call itself says: so a repeated
// sequence makes the same choices.
func (h *earlier) turn(cmd redis.Cmder) {
	args := cmd.Args()
	if len(args) < 2 || h.sha[args[1]] == "" {
		return
	}
	h.calls.Add(1)
	f := fnv.New64a()
	fmt.Fprint(f, args[1:]...)
	if f.Sum64()%2 == 0 {
		return
	}
	h.old.Add(1)
	h.made.Store(h.name[args[1]], true)
	args[1] = h.sha[args[1]]
}

func (h *earlier) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *earlier) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.turn(cmd)
		return next(ctx, cmd)
	}
}

func (h *earlier) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.turn(cmd)
		}
		return next(ctx, cmds)
	}
}

// Two neighbouring versions serve together: of the random sequences of TestScriptsFollowTheModel,
// about every other call is made with the scripts of the version before. The model predicts every
// answer and everything in Redis all the same, and in the end all that was accepted has ended.
func TestVersionsServeTogether(t *testing.T) {
	rdb := redistest.Start(t).Client()
	old := newEarlier(t, rdb, schemaOne)
	rdb.AddHook(old)
	sequences := 12
	if testing.Short() {
		sequences = 4
	}
	t.Cleanup(func() { // when the players have ended
		if n, all := old.old.Load(), old.calls.Load(); n < all/4 || n > 3*all/4 {
			t.Errorf("%d of %d calls were made with earlier scripts", n, all)
		}
		for _, name := range []string{"enqueue", "release", "gate", "finish", "policy", "beat"} {
			if _, ok := old.made.Load(name); !ok {
				t.Errorf("no call of %s was made with its earlier script", name)
			}
		}
	})
	runModel(t, rdb, sequences)
}

// What a newer version of the same major adds is kept and ignored.
func TestAdditionsAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Open(t))
	ctx := t.Context()
	w.must(w.rdb.HSet(ctx, w.q.DownstreamKey(), "schema", "1.7", "later", "x").Err())
	w.set("a", Policy{MaxAttempts: 3, Backoff: Backoff{time.Second, time.Second}})
	w.must(w.rdb.HSet(ctx, w.q.TenantKey("a"), "p:later", "x").Err())
	w.pool("p", 4)
	pools, err := w.rdb.HGet(ctx, w.q.PoolsKey(), "p").Result()
	w.must(err)
	w.must(w.rdb.HSet(ctx, w.q.PoolsKey(), "p", pools+" later").Err())
	w.offer(Spec{Tenant: "a", ID: "a1", Payload: []byte("x")})
	add := func(key, id, after, what string) {
		t.Helper()
		v, err := w.rdb.HGet(ctx, key, id).Result()
		w.must(err)
		i := strings.Index(v, after)
		w.must(w.rdb.HSet(ctx, key, id, v[:i]+what+v[i:]).Err())
	}
	add(w.q.JobsKey("a"), "a1", "\n", " later 2")
	delete(w.places, "p") // does not beat again, so what was added stays
	if s, err := w.admin.Stats(ctx, true); err != nil || s.Places != 4 {
		t.Errorf("%d places (%v), want 4", s.Places, err)
	}
	for i, f := range []queue.Finish{{Ending: queue.EndThrottled}, {Ending: queue.EndError}, {Ending: queue.EndOK}} {
		g := w.start()
		if g.ID != "a1" || string(g.Payload) != "x" || g.Attempt != i+1 {
			t.Fatalf("started %+v", g)
		}
		reason := strings.Fields(w.rdb.HGet(ctx, w.q.StateKey("a"), "a1").Val())[9]
		if i == 0 {
			add(w.q.StateKey("a"), "a1", ",granted", ",later=2,even-later")
		} else if !strings.Contains(reason, ",later=2,even-later") || w.job("a", "a1").Attempt != i+1 {
			t.Errorf("start %d: marks %s, want those that were added", i+1, reason)
		}
		w.finish(g, f)
	}
	if h := w.rdb.HGetAll(ctx, w.q.DownstreamKey()).Val(); h["schema"] != "1.7" || h["later"] != "x" {
		t.Errorf("the downstream has lost what was added: %v", h)
	}
	if v := w.rdb.HGet(ctx, w.q.TenantKey("a"), "p:later").Val(); v != "x" {
		t.Errorf("the tenant has lost what was added")
	}
	ended := func(id string, attempts int) {
		t.Helper()
		if j := w.job("a", id); j.State != StateDone || j.Attempt != attempts || j.Type != "test" {
			t.Errorf("%s ended as %+v", id, j)
		}
		if r := w.offer(Spec{Tenant: "a", ID: id, Payload: []byte("x")}); !r.Duplicate {
			t.Errorf("%s offered again: %+v, want a duplicate", id, r)
		}
	}
	page := w.q.PageKey("a", 0)
	w.must(w.rdb.LSet(ctx, page, 1, w.rdb.LIndex(ctx, page, 1).Val()+" later").Err())
	ended("a1", 3)
	w.offer(Spec{Tenant: "a", ID: "a2", Payload: []byte("x"), Retention: time.Hour})
	w.finish(w.start(), queue.Finish{Ending: queue.EndOK})
	kept, rest, _ := strings.Cut(w.rdb.Get(ctx, w.q.EndKey("a", "a2")).Val(), "\n")
	w.must(w.rdb.Set(ctx, w.q.EndKey("a", "a2"), kept+" later\n"+rest, 0).Err())
	ended("a2", 1)
}

// Every word of a state that can be garbled is: its job is not lost, does not run as one that never
// did, and the others go on.
func TestGarbledStateWords(t *testing.T) {
	testenv.Long(t, "garbles every word of a state")
	t.Parallel()
	rdb := redistest.Open(t)
	names := []string{"state", "releases", "attempts", "forgiven", "crashes", "token", "slot", "since", "next", "reason"}
	for _, where := range []State{StateWaiting, StateDelayed, StateOut, StateRunning, StateDead} {
		for i, name := range names {
			for _, how := range []string{"ä1/2", "", "twice"} {
				w := newWorld(t, rdb)
				ctx := t.Context()
				w.set("a", Policy{MaxAttempts: 2, Backoff: Backoff{time.Second, time.Second}})
				w.pool("p", 1)
				w.offers("a", 2)
				g := w.start()
				switch where {
				case StateRunning:
				case StateDead:
					w.finish(g, queue.Finish{Ending: queue.EndDead, Began: queue.BeganAfter(0)})
				case StateDelayed:
					w.finish(g, queue.Finish{Ending: queue.EndError, Delay: 5000000000, Began: queue.BeganAfter(0)})
				default:
					w.finish(g, queue.Finish{Ending: queue.EndThrottled, Began: queue.BeganAfter(0)})
					if w.pass(second); where == StateOut {
						w.release(1)
					}
				}
				words := strings.SplitN(w.rdb.HGet(ctx, w.q.StateKey("a"), "a1").Val(), " ", 11)
				garbled := slices.Clone(words)
				switch how {
				case "twice": // a word more
					garbled = slices.Insert(garbled, i, garbled[i])
				default:
					garbled[i] = how
				}
				w.must(rdb.HSet(ctx, w.q.StateKey("a"), "a1", strings.Join(garbled, " ")).Err())
				what := fmt.Sprintf("%s, %s %q", where, name, how)
				if where == StateRunning {
					w.finish(g, queue.Finish{Ending: queue.EndOK})
				}
				var ran []string
				for n := range 40 {
					w.pool("p", 1)
					tickets, _, _ := w.release(5)
					for _, k := range tickets {
						if g, _ := w.enter(k, "p"); g != nil {
							if g.ID == "a1" && g.Attempt < 2 {
								t.Errorf("%s: ran again as attempt %d", what, g.Attempt)
							}
							ran = append(ran, g.ID)
							w.finish(g, queue.Finish{Ending: queue.EndOK})
						}
					}
					if w.pass(second); n%10 == 9 {
						_, err := w.admin.Books(ctx, true)
						w.must(err)
					}
				}
				if !slices.Contains(ran, "a2") {
					t.Errorf("%s: the other job did not run: %v", what, ran)
				}
				if j, err := w.client.Find(ctx, "a", "a1"); err != nil || !j.State.Ended() {
					t.Errorf("%s: became %+v, %v", what, j, err)
				}
			}
		}
	}
}
