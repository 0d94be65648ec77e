//go:build !sabotage

package queue

// sabotaged is where tests of the tests break a script, see sabotage.go. Here it breaks nothing.
func sabotaged(_ string, src []byte) []byte { return src }
