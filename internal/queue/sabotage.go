//go:build sabotage

package queue

import "github.com/jobshaper/jobshaper/internal/test/sabotage"

// sabotaged breaks a script as SHAPER_SABOTAGE says, for `make sabotage`.
func sabotaged(file string, src []byte) []byte { return sabotage.Script(file, src) }
