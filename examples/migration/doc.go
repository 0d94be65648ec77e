// Package migration is a service on asynq, and the same service on Jobshaper.
// docs/migrating-from-asynq.md shows its files; its test runs both services and compares what
// happens.
package migration
