package model

import (
	"reflect"
	"testing"
	"time"
)

// A clone is the same, and shares nothing: no pointer, map or slice, in whichever field.
func TestClone(t *testing.T) {
	d := New(1_000_000, DownstreamPolicy{Log: true, Defaults: Policy{Depth: 3, OnFull: "drop-oldest"}})
	d.Beat("p", 3, time.Minute, 0, nil)
	d.Beat("gone", 1, time.Minute, 0, nil)
	d.Offer("a", Offer{ID: "1"}, Offer{ID: "2"}, Offer{ID: "3"}, Offer{ID: "4"}, Offer{ID: "5", Delay: time.Hour})
	d.Offer("b", Offer{ID: "1"}, Offer{ID: "2"})
	tickets, _, _ := d.Release(1, time.Minute, 0)
	d.Enter(tickets[0], "gone.1")
	d.Set(200_000_000)
	d.Release(1, time.Minute, 0)
	d.Beat("p", 3, time.Minute, 0, nil)
	tickets, _, _ = d.Release(9, time.Minute, 0)
	g, why := d.Enter(tickets[0], "p.2")
	if g == nil {
		t.Fatal(why)
	}
	d.Restart()
	c := d.Clone()
	if !reflect.DeepEqual(c, d) {
		t.Error("the clone differs")
	}
	seen := map[uintptr]bool{}
	each(reflect.ValueOf(d), seen, func(p uintptr, _ string) { seen[p] = true }, "d")
	if len(seen) < 30 {
		t.Errorf("%d parts seen, so most are not there to be shared", len(seen))
	}
	again := map[uintptr]bool{}
	each(reflect.ValueOf(c), again, func(p uintptr, where string) {
		if again[p] = true; seen[p] {
			t.Errorf("%s is shared", where)
		}
	}, "c")
	if j := c.Tenants[g.Tenant].Owned("p.2"); j == nil || j != c.Job(g.Tenant, g.ID) {
		t.Error("a job of the clone is two")
	}
}

// each visits what v consists of, and calls f for what could be shared.
func each(v reflect.Value, seen map[uintptr]bool, f func(p uintptr, where string), where string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		if v.IsNil() || v.Kind() == reflect.Slice && v.Cap() == 0 || seen[v.Pointer()] {
			return
		}
		f(v.Pointer(), where)
	}
	switch v.Kind() {
	case reflect.Pointer:
		each(v.Elem(), seen, f, where)
	case reflect.Struct:
		for i := range v.NumField() {
			each(v.Field(i), seen, f, where+"."+v.Type().Field(i).Name)
		}
	case reflect.Map:
		for i := v.MapRange(); i.Next(); {
			each(i.Value(), seen, f, where+"["+i.Key().String()+"]")
		}
	case reflect.Slice:
		for i := range v.Len() {
			each(v.Index(i), seen, f, where)
		}
	}
}
