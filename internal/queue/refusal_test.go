package queue

import (
	"errors"
	"testing"
)

// What a script says of a field that cannot be read is found, whatever the server adds to it.
func TestRefused(t *testing.T) {
	q := Queue{Downstream: "d"}
	for text, want := range map[string][2]string{
		"ERR UNREADABLE [[schema=2.0]] script: 81c1, on @user_script:21.":                                  {"schema", "2.0"},
		"ERR Error running script (call to f_81c1): @user_script:21: UNREADABLE [[p:depth=a=b]]":           {"p:depth", "a=b"},
		"UNREADABLE [[rate=1/2/3]] stack traceback:  [G]: in function 'error'  :75: in main chunk  [G]: ?": {"rate", "1/2/3"},
		"ERR UNREADABLE [[vt=]] script: 81c1":                                                              {"vt", ""},
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                {},
	} {
		said := errors.New(text)
		err := q.refused(said)
		if want[0] == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		var unreadable *UnreadableError
		if !errors.As(err, &unreadable) || unreadable.Field != want[0] || unreadable.Value != want[1] || !errors.Is(err, ErrStore) || !errors.Is(err, said) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestCheckSchema(t *testing.T) {
	for version, readable := range map[string]bool{"": true, "1.0": true, "1.12": true, "2.0": false, "10.0": false, "1": false, "x": false} {
		if err := (Queue{}).CheckSchema(version); (err == nil) != readable {
			t.Errorf("%q: %v", version, err)
		}
	}
}
