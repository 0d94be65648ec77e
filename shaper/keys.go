package shaper

// Names of the keys in Redis. Everything of one downstream carries the hash tag {downstream}, so that one
// script can see all of it, and Redis Cluster spreads downstreams over its nodes. Scripts build the same
// names from the prefix that they are given; lua/lib/base.lua is this file's twin, and TestKeysTwin holds both together.

// prefix of every key of a downstream.
func prefix(downstream string) string { return "shaper:{" + downstream + "}:" }

func (q queue) downstreamKey() string          { return q.prefix + "d" }
func (q queue) dueKey() string                 { return q.prefix + "due" }
func (q queue) readyKey() string               { return q.prefix + "ready" }
func (q queue) outKey() string                 { return q.prefix + "out" }
func (q queue) runKey() string                 { return q.prefix + "run" }
func (q queue) poolsKey() string               { return q.prefix + "pools" }
func (q queue) tenantsKey() string             { return q.prefix + "tenants" }
func (q queue) logKey() string                 { return q.prefix + "log" }
func (q queue) namedKey() string               { return q.prefix + "named" }
func (q queue) configsKey() string             { return q.prefix + "configs" }
func (q queue) signalChannel() string          { return q.prefix + "sig" }
func (q queue) tenantKey(t string) string      { return q.prefix + "t:" + t }
func (q queue) waitKey(t string) string        { return q.prefix + "w:" + t }
func (q queue) backKey(t string) string        { return q.prefix + "b:" + t }
func (q queue) laterKey(t string) string       { return q.prefix + "z:" + t }
func (q queue) jobsKey(t string) string        { return q.prefix + "j:" + t }
func (q queue) stateKey(t string) string       { return q.prefix + "s:" + t }
func (q queue) outsKey(t string) string        { return q.prefix + "o:" + t }
func (q queue) deadKey(t string) string        { return q.prefix + "x:" + t }
func (q queue) admitKey(rule, t string) string { return q.prefix + "a:" + rule + ":" + t } // t is "" for a rule that tenants share
func (q queue) receiptKey(token string) string { return q.prefix + "g:" + token }
func (q queue) markKey() string                { return q.prefix + "mark" } // written before replicas are asked, see confirm.go
func (q queue) endKey(t, id string) string     { return q.prefix + "e:" + t + ":" + id }
