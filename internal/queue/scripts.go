package queue

import (
	"embed"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/lua"
)

//go:embed lua
var files embed.FS

// Script is a script of the queue: lua/NAME.lua and what it includes.
type Script struct {
	*redis.Script        // nil before Define
	before, after string // its crash points
}

var (
	EnqueueScript  = script("enqueue")
	ReleaseScript  = script("release")
	GateScript     = script("gate")
	FinishScript   = script("finish")
	BeatScript     = script("beat")
	GivebackScript = script("giveback")
	CancelScript   = script("cancel")
	DeadScript     = script("dead")
	PurgeScript    = script("purge")
	PolicyScript   = script("policy")
	ConfigScript   = script("config")
	PauseScript    = script("pause")
	ForgetScript   = script("forget")
	FindScript     = script("find")
	StatsScript    = script("stats")
	CompareScript  = script("compare")
	MendScript     = script("mend")
)

// Scripts are all scripts, by name.
var Scripts = map[string]*Script{}

func script(name string) *Script {
	s := &Script{before: name + ".before", after: name + ".after"}
	Scripts[name] = s
	return s
}

// given are the pieces of scripts that are not files.
var given = map[string]string{
	"algorithms": buckets.LuaFunctions(), // of the admission checks
	"timeline":   buckets.LuaTimeline(),
}

// Define makes the scripts. It must be called once in a process, before anything else of this
// package is used. fields is the piece that knows the fields of policies. Package shaper, which has
// the policies, makes it from their tables and calls Define while it is initialized. The texts are
// constant: names and values reach a script through KEYS and ARGV only.
func Define(fields string) {
	given["fields"] = fields
	for name, s := range Scripts {
		src, err := lua.Assemble(files, name, given, sabotaged)
		if err != nil {
			panic(err) // a file is missing or includes itself: the build is broken
		}
		s.Script = redis.NewScript(src)
	}
}

// Twins of BUDGET, BATCH and FOREVER in lua/lib/base.lua.
const (
	Budget  = 1200                  // commands that a script makes at most in one call
	Batch   = 50                    // items of each kind that it handles at most
	Forever = 9_000_000_000_000_000 // an instant that never comes
)
