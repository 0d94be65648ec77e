// Package sim plays a whole downstream in virtual time, from one seed: schedulers and pools at a
// distance from Redis, tickets that get lost, processes that crash, a Redis that restarts and may
// forget its last moments. Days pass in a second, and the same seed always plays the same.
//
// What is played are the calls of a model.Queue: of the model, which is quick, or of the scripts
// themselves (TestSimulatedScripts of package shaper). The verdict does not ask the queue. It looks
// at what happened: Findings name what broke a promise of safety (spacing, order, nothing lost) or
// of liveness (every tenant with a backlog starts in bounded time, rates are kept, tickets do not
// pile up).
package sim
