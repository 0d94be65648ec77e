package policing

import (
	"fmt"
	"strconv"
	"strings"
)

// Share is a part of a whole, in millionths, so that what was written is what is kept.
type Share int64

// Whole is all of it; Percent a hundredth.
const (
	Percent Share = 10_000
	Whole         = 100 * Percent
)

// String writes the share in per cent: "20%", "0.25%".
func (s Share) String() string {
	text := fmt.Sprintf("%d.%04d", s/Percent, s%Percent)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".") + "%"
}

// ParseShare reads a share in per cent, with at most four decimals: "20%", "0.25%". It
// must be more than nothing and less than all.
func ParseShare(text string) (Share, error) {
	bad := fmt.Errorf("%w: share %q: want more than 0%% and less than 100%%, with at most 4 decimals, such as 20%%", ErrRule, text)
	digits, ok := strings.CutSuffix(text, "%")
	whole, decimals, _ := strings.Cut(digits, ".")
	if !ok || len(whole) > 2 || len(decimals) > 4 || strings.Trim(whole+decimals, "0123456789") != "" {
		return 0, bad
	}
	n, err := strconv.ParseInt("0"+whole+decimals+"0000"[len(decimals):], 10, 64)
	if err != nil || n == 0 {
		return 0, bad
	}
	return Share(n), nil
}

// of reports whether part is more than the share of all. Both are below 2^40.
func (s Share) of(part, all uint64) bool {
	return part*uint64(Whole) > all*uint64(s)
}
