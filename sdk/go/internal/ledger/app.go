// The name of an application.
package ledger

import "fmt"

// appLimit is how long a name may be, in bytes.
const appLimit = 32

func allowed(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '_' || b == '-'
}

// checkApp says what is wrong with the name of an application.
func checkApp(name string) error {
	ok := len(name) >= 1 && len(name) <= appLimit
	for i := 0; ok && i < len(name); i++ {
		ok = allowed(name[i])
	}
	if !ok {
		return fmt.Errorf("application name %q: write 1 to %d of a-z A-Z 0-9 _ -", name, appLimit)
	}
	return nil
}

// AppFrom makes the name of an application from that of a program.
func AppFrom(program string) string {
	name := []byte(program)
	for i, b := range name {
		if !allowed(b) {
			name[i] = '-'
		}
	}
	if len(name) == 0 {
		return "app"
	}
	return string(name[:min(len(name), appLimit)])
}
