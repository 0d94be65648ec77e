package e2e

import (
	"path/filepath"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// asTheLeastUser are tests of the main job that do nothing but what producers, daemons and
// operators do.
var asTheLeastUser = []string{
	"TestTheBoundHolds", "TestRetriesAreSpaced", "TestDeadJobsComeBackSpaced", "TestThrottledWaits",
	"TestSameIDIsOneJob", "TestCancelledJobs", "TestExpiredJobs",
}

// TestAsTheLeastUser runs tests of this package again, as the user of deploy/users.acl. That user
// must be refused nothing meanwhile: some refusals would not show otherwise, such as of what a
// script tries in a pcall.
func TestAsTheLeastUser(t *testing.T) {
	notShort(t)
	t.Parallel() // none of them is about milliseconds
	users, err := filepath.Abs("../../../deploy/users.acl")
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t, redistest.Args("--aclfile", users))
	admin := server.Client()
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "shaper", ">s3cret").Err(); err != nil {
		t.Fatal(err)
	}
	rerun(t, "redis://shaper:s3cret@"+server.Addr()+"/0", asTheLeastUser, false)
	refused, err := admin.ACLLog(t.Context(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range refused {
		t.Errorf("refused %s %q (%s), %d times", e.Reason, e.Object, e.Context, e.Count)
	}
}
