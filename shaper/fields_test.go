package shaper

import (
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// Each field of a policy has one row, whose name and keys no other row has.
func TestEachFieldHasARow(t *testing.T) {
	var p DownstreamPolicy
	keys := map[string]bool{admitField: true}
	each := func(policy reflect.Value, rows []setting.Value, others ...string) {
		names, fields := map[string]bool{}, map[any]bool{}
		for _, v := range rows {
			if names[v.Name] || fields[v.Pointer()] || v.Meaning == "" {
				t.Errorf("row %s: its name or field is another row's too, or it means nothing", v.Name)
			}
			names[v.Name], fields[v.Pointer()] = true, true
			for _, key := range strings.Fields(v.Key) {
				if keys[key] {
					t.Errorf("row %s: the key %s is another row's too", v.Name, key)
				}
				keys[key] = true
			}
		}
		for i := range policy.NumField() {
			name := policy.Type().Field(i).Name
			if !fields[policy.Field(i).Addr().Interface()] && !slices.Contains(others, name) {
				t.Errorf("%s.%s has no row", policy.Type(), name)
			}
		}
	}
	each(reflect.ValueOf(&p).Elem(), downstreamTable.Of(&p), "Defaults", "Admit")
	each(reflect.ValueOf(&p.Defaults).Elem(), policyTable.Of(&p.Defaults))
}

// A script names no field of a policy that no row has.
func TestScriptsNameFieldsOfRows(t *testing.T) {
	known := policyFields(Policy{})
	files := os.DirFS("../internal/queue")
	entries, err := fs.Glob(files, "lua/*.lua")
	pieces, err2 := fs.Glob(files, "lua/lib/*.lua")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	named := 0
	for _, f := range append(entries, pieces...) {
		b, err := fs.ReadFile(files, f)
		if err != nil {
			t.Fatal(err)
		}
		src := string(b)
		for _, m := range regexp.MustCompile(`['"](p:\w+)['"]`).FindAllStringSubmatch(src, -1) {
			if named++; !slices.Contains(known, m[1]) {
				t.Errorf("%s names the field %s, which has no row", f, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`fallback\('(\w+)'\)`).FindAllStringSubmatch(src, -1) {
			if named++; !strings.Contains(luaFields(), "if field == '"+m[1]+"' then") {
				t.Errorf("%s falls back to the default of %s, which has none", f, m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("%d names found", named)
	}
}

// What applies where a field was set nowhere is the same in the scripts as in Go.
func TestScriptsFallBackToDefaults(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	const run = "\nreturn { fallback(ARGV[1]) or '' }"
	for i, all := 0, downstreamFields(DownstreamPolicy{}.WithDefaults()); i < len(all); i += 2 {
		got, err := w.rdb.Eval(t.Context(), luaFields()+run, nil, all[i]).StringSlice()
		if err != nil || len(got) != 1 || got[0] != all[i+1] {
			t.Errorf("%s: %q, %v; want %q", all[i], got, err, all[i+1])
		}
	}
	want := Policy{Rate: buckets.PerSecond(10), Depth: 1000, Weight: 1, OnFull: Reject, MaxInFlight: 1000, MaxAttempts: 5, MaxThrottles: 100,
		Backoff: Backoff{time.Second, 5 * time.Minute}, Timeout: 10 * time.Minute, MaxWait: -1, Retention: time.Hour, MaxEnds: 100_000}
	if got := DefaultPolicy(); got.or(want) != got || want.or(got) != got {
		t.Errorf("the defaults are %+v, want %+v", got, want)
	}
}

// sample sets each field to a value that is not its default; other makes a second one of it.
func sample(t *testing.T, rows []setting.Value, other bool) {
	t.Helper()
	for i, v := range rows {
		n := i + 2
		if other {
			n += len(rows)
		}
		switch p := v.Pointer().(type) {
		case *buckets.Rate:
			*p = rate(3, time.Duration(n)*time.Microsecond)
		case *int:
			*p = n
		case *time.Duration:
			*p = time.Duration(n) * time.Second
			if v.Check() != "" {
				*p *= 60
			}
		case *Backoff:
			*p = Backoff{time.Duration(n) * time.Second, time.Duration(n+1) * time.Second}
		case *OnFull:
			*p = map[bool]OnFull{false: Block, true: DropOldest}[other]
		case *Spacing:
			*p = map[bool]Spacing{false: SharedSpacing, true: StrictSpacing}[other]
		case *UnknownTenants:
			*p = map[bool]UnknownTenants{false: RefuseUnknown, true: UseDefaults}[other]
		default:
			t.Fatalf("%s is of a kind that this test does not know", v.Name)
		}
		if v.Check() != "" || !v.IsSet() {
			t.Fatalf("%s: the test's value %s cannot be set", v.Name, v.Text())
		}
	}
}

// Every field is kept and read back, by itself and with all others, and merged where it is not set.
func TestEachFieldRoundTrips(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	var all, others Policy
	var ds DownstreamPolicy
	sample(t, policyTable.Of(&all), false)
	sample(t, policyTable.Of(&others), true)
	sample(t, downstreamTable.Of(&ds), false)
	ds.Defaults = others
	w.setDownstream(ds)
	if got, err := w.admin.Downstream(t.Context()); err != nil || !reflect.DeepEqual(got, ds) {
		t.Errorf("downstream %+v, %v; want %+v", got, err, ds)
	}
	for i, v := range policyTable.Of(&all) {
		name := "t" + strconv.Itoa(i)
		one, effective := all, others
		for k, f := range policyTable.Of(&one) {
			if k != i {
				f.Unset()
			}
		}
		for k, f := range policyTable.Of(&effective) {
			if k == i {
				f.Unset()
			}
		}
		effective = effective.or(all)
		w.set(name, one)
		got, err := w.admin.Tenant(t.Context(), name)
		if err != nil || got.Set != one || got.Effective != effective {
			t.Errorf("%s: set %+v, effective %+v, %v; want %+v and %+v", v.Name, got.Set, got.Effective, err, one, effective)
		}
	}
}

// What is made from the policies' tables, and becomes part of scripts, is constant: lists of their
// fields, defaults, and what can be read.
func TestOnlyTablesAreWrittenIntoScripts(t *testing.T) {
	const word = `'[a-z_:]+'`
	line := regexp.MustCompile(`^(local function (fallback\(field\)|\w+_policy\(\) return ` + word + `(, ` + word + `)* end)|` +
		`  if field == ` + word + ` then return '[\w/-]+' end|end|` +
		`local function is_rate\(v\) return string\.find\(v, '\^\[1-9]%d\*/\[1-9]%d\*\$'\) end|` +
		`local POLICY_WORDS = \{( \[` + word + `] = true,)+ }|local function policy_words\(h, illegible\)|  local v|  v = h\[` + word + `]|` +
		`  if v and not \((v == '[\w-]*'|is_rate\(v\)| or )+\) then illegible\(h, ` + word + `, v\) end|)$`)
	for l := range strings.SplitSeq(luaFields(), "\n") {
		if !line.MatchString(l) {
			t.Errorf("%q is written into scripts", l)
		}
	}
}
