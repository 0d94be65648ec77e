//go:build !sabotage

package shaper

// sabotaged is where tests of the tests break a script, see sabotage.go. Here it breaks nothing.
func sabotaged(_ string, src []byte) []byte { return src }
