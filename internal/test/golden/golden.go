// Package golden has the type of the exact vectors of the algorithms, for the tests of packages
// whose answers follow from them.
package golden

// Vector is one case of buckets/testdata/vectors.json; generate.py next to it made them and says
// what each field means.
type Vector struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Params    struct {
		Capacity int64 `json:"capacity"`
		Events   int64 `json:"events"`
		Per      int64 `json:"per_us"`
		Limit    int64 `json:"limit"`
		Window   int64 `json:"window_us"`
		Depth    int64 `json:"depth"`
		Grace    int64 `json:"grace_us"`
	} `json:"params"`
	Rows []struct {
		T         int64 `json:"t_us"`
		N         int64 `json:"n"`
		OK        bool  `json:"ok"`
		Remaining int64 `json:"remaining"`
		Retry     int64 `json:"retry_us"`
		Reset     int64 `json:"reset_us"`
		Wait      int64 `json:"wait_us"`
	} `json:"rows"`
}
