// Package e2e holds the tests of the whole: producers, schedulers and workers in several processes
// on a real Redis, some of which are killed, stopped and frozen. It has no code outside its tests.
//
// A test writes down what happens in a history (package history) and judges that. It waits for
// events, never for a time by which something should have happened; all that it asserts about time
// is lower bounds, which a busy machine cannot break.
//
// The processes are this test binary, started again: see TestMain.
package e2e
