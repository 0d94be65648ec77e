package httplimit

import (
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
