package buckets

// InScript is a limit that a larger script asks along the way, with LuaFunctions: it makes the
// function's arguments and reads its reply. It is immutable, and talks to nobody.
type InScript struct {
	plan *plan
	name string
}

// NewInScript returns a limit for scripts that go by the Redis server's clock, or an
// error that names the bad field.
func NewInScript(params Params) (InScript, error) {
	p, err := newPlan(params, storeClock)
	return InScript{plan: p, name: luaName(params.Algorithm)}, err
}

// Args returns what the script needs to ask for n: the name of the algorithm's function,
// and its arguments. n must not be negative; the function refuses what exceeds the limit.
func (s InScript) Args(n int64) []any {
	return append([]any{s.name}, s.plan.args(max(n, 0))...)
}

// Decode turns the reply of the function (a list of integers) into the decision about n,
// with the errors of AllowN.
func (s InScript) Decode(reply []any, n int64) (Decision, error) {
	return s.plan.finish(reply, n)
}
