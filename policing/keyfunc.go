package policing

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// KeyFunc says who a request is from. Requests with the same key, "" as well, share the
// limits per tenant.
type KeyFunc func(*http.Request) string

// maxPlainKey is the longest value of a header that is a key as it stands.
const maxPlainKey = 128

// Header takes the value of a header, such as a tenant's name that a gateway has put there.
// Clients must not be able to choose it. A long value is hashed.
func Header(name string) KeyFunc {
	return func(r *http.Request) string {
		value := r.Header.Get(name)
		if len(value) > maxPlainKey {
			return hashed(value)
		}
		return value
	}
}

// APIKey takes a hash of the credential in a header, such as X-Api-Key or Authorization,
// so that no secret is kept or shown. A scheme such as Bearer does not count.
//
// A client without a credential has the key "". One with a wrong credential has a key of
// its own: authenticate first, or limit addresses as well.
func APIKey(header string) KeyFunc {
	return func(r *http.Request) string {
		value := strings.TrimSpace(r.Header.Get(header))
		if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Bearer") {
			value = strings.TrimSpace(token)
		}
		if value == "" {
			return ""
		}
		return hashed(value)
	}
}

// hashed is half a SHA-256, in hex.
func hashed(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:16])
}

// RemoteAddr takes the address of the connection, without its port: right where no proxy
// stands before the service.
func RemoteAddr(r *http.Request) string {
	if addr, ok := parseHop(r.RemoteAddr); ok {
		return addr.String()
	}
	return r.RemoteAddr
}
