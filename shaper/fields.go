package shaper

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jobshaper/jobshaper/internal/queue"
)

// Policies are kept in Redis as fields of the downstream's and the tenants' hashes, under the keys
// of their rows in policy.go.

// admitField is the field of the admission rules, the only part of a policy that has no row.
const admitField = "admit"

// policyFields returns field, value, … of a tenant's policy; a field that is not set has an empty
// value.
func policyFields(p Policy) []string { return policyTable.Kept(&p) }

// downstreamFields returns field, value, … of a policy that is valid.
func downstreamFields(p DownstreamPolicy) []string {
	admit, err := newAdmitted(p.Admit)
	if err != nil {
		panic(err) // the caller has not validated it
	}
	own := append([]string{admitField, admit.field}, downstreamTable.Kept(&p)...)
	return append(own, policyFields(p.Defaults)...)
}

func readPolicy(h map[string]string) (p Policy) {
	policyTable.Recall(&p, h)
	return p
}

func readDownstream(h map[string]string) DownstreamPolicy {
	p := DownstreamPolicy{Defaults: readPolicy(h), Admit: readRules(h[admitField])}
	downstreamTable.Recall(&p, h)
	return p
}

// or returns p with every field that is not set taken from q.
func (p Policy) or(q Policy) Policy {
	policyTable.Inherit(&p, &q)
	return p
}

// WithDefaults returns p as it applies, with every field that is not set filled in.
func (p DownstreamPolicy) WithDefaults() DownstreamPolicy {
	downstreamTable.SetDefaults(&p)
	policyTable.SetDefaults(&p.Defaults)
	return p
}

// From here on the scripts can be made: see queue.Define.
func init() { queue.Define(luaFields()) }

// luaFields is what the scripts know of policies: what applies where a field was set nowhere, the
// names of a tenant's and a downstream's fields, as values for a table or a call, and which of them
// are no numbers, with a function that calls illegible(h, field, value) for those that cannot be
// read. It is made from the tables alone, so it is constant. It consists of functions where it can,
// since every call of a script would make a table anew.
func luaFields() string {
	var b strings.Builder
	list := func(function string, fields []string) {
		fmt.Fprintf(&b, "local function %s() return '%s'", function, fields[0])
		for i := 2; i < len(fields); i += 2 {
			fmt.Fprintf(&b, ", '%s'", fields[i])
		}
		b.WriteString(" end\n")
	}
	all := downstreamFields(DownstreamPolicy{}.WithDefaults())
	b.WriteString("local function fallback(field)\n")
	for i := 0; i < len(all); i += 2 {
		if all[i+1] != "" {
			fmt.Fprintf(&b, "  if field == '%s' then return '%s' end\n", all[i], all[i+1])
		}
	}
	b.WriteString("end\n")
	list("tenant_policy", policyFields(Policy{}))
	list("downstream_policy", all)

	words, checks := "", ""
	for _, v := range slices.Concat(policyTable.Of(&Policy{}), downstreamTable.Of(&DownstreamPolicy{})) {
		if test := v.Lua(); test != "" {
			words += fmt.Sprintf(" ['%s'] = true,", v.Key)
			checks += fmt.Sprintf("  v = h['%s']\n  if v and not (%s) then illegible(h, '%[1]s', v) end\n", v.Key, test)
		}
	}
	b.WriteString("local function is_rate(v) return string.find(v, '^[1-9]%d*/[1-9]%d*$') end\n") // as setting.KeepRate keeps it
	fmt.Fprintf(&b, "local POLICY_WORDS = {%s }\n", words)
	fmt.Fprintf(&b, "local function policy_words(h, illegible)\n  local v\n%send\n", checks)
	return b.String()
}
