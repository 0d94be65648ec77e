package jobshaper

import (
	"testing"

	"github.com/jobshaper/jobshaper/internal/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }
