package queue

import "strconv"

// Names of the keys in Redis. All keys of one downstream carry the hash tag {downstream}, so one
// script can see all of them, and Redis Cluster spreads downstreams over its nodes. Scripts build
// the same names from the prefix that they are given; lua/lib/base.lua is this file's twin, and
// TestKeysTwin of package shaper holds both together.

// prefix of every key of a downstream.
func prefix(downstream string) string { return "shaper:{" + downstream + "}:" }

func (q Queue) DownstreamKey() string          { return q.Prefix + "d" }
func (q Queue) DueKey() string                 { return q.Prefix + "due" }
func (q Queue) ReadyKey() string               { return q.Prefix + "ready" }
func (q Queue) OutKey() string                 { return q.Prefix + "out" }
func (q Queue) RunKey() string                 { return q.Prefix + "run" }
func (q Queue) ApartKey() string               { return q.Prefix + "apart" }
func (q Queue) PoolsKey() string               { return q.Prefix + "pools" }
func (q Queue) TenantsKey() string             { return q.Prefix + "tenants" }
func (q Queue) LogKey() string                 { return q.Prefix + "log" }
func (q Queue) NamedKey() string               { return q.Prefix + "named" }
func (q Queue) ConfigsKey() string             { return q.Prefix + "configs" }
func (q Queue) EndsKey() string                { return q.Prefix + "ends" }
func (q Queue) GaveKey() string                { return q.Prefix + "gave" }
func (q Queue) SignalChannel() string          { return q.Prefix + "sig" }
func (q Queue) TenantKey(t string) string      { return q.Prefix + "t:" + t }
func (q Queue) WaitKey(t string) string        { return q.Prefix + "w:" + t }
func (q Queue) BackKey(t string) string        { return q.Prefix + "b:" + t }
func (q Queue) LaterKey(t string) string       { return q.Prefix + "z:" + t }
func (q Queue) JobsKey(t string) string        { return q.Prefix + "j:" + t }
func (q Queue) StateKey(t string) string       { return q.Prefix + "s:" + t }
func (q Queue) OutsKey(t string) string        { return q.Prefix + "o:" + t }
func (q Queue) DeadKey(t string) string        { return q.Prefix + "x:" + t }
func (q Queue) AdmitKey(rule, t string) string { return q.Prefix + "a:" + rule + ":" + t } // t is "" for a rule that tenants share
func (q Queue) ReceiptKey(token string) string { return q.Prefix + "g:" + token }
func (q Queue) MarkKey() string                { return q.Prefix + "mark" }                           // written before replicas are asked, see confirm.go of package shaper
func (q Queue) PageKey(t string, n int) string { return q.Prefix + "k:" + t + ":" + strconv.Itoa(n) } // of ends
func (q Queue) EndKey(t, id string) string     { return q.Prefix + "e:" + t + ":" + id }
