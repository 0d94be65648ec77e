// Package usable says what a constructor must refuse because it would fail later, or do worse.
package usable

import (
	"reflect"

	"github.com/redis/go-redis/v9"
)

// Nil reports whether v is nil, or an interface that holds a nil pointer, function or map.
func Nil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Interface, reflect.Chan, reflect.Slice:
		return r.IsNil()
	}
	return false
}

// Client says what is wrong with a Redis client and what would be right; "" if it can be used. A
// client that is not told to obey the deadline of a context waits for a silent server as long as
// its ReadTimeout, or for ever, however little time its caller has.
func Client(rdb redis.UniversalClient) (value, want string) {
	if Nil(rdb) {
		return "nil", "a go-redis client"
	}
	obeys := true
	switch c := rdb.(type) {
	case *redis.Client:
		obeys = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		obeys = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		obeys = c.Options().ContextTimeoutEnabled
	}
	if !obeys {
		return "a client that ignores deadlines", "ContextTimeoutEnabled: true in its redis.Options"
	}
	return "", ""
}
